//! Faults on demand, and clients that leave.

mod fleet;

use std::time::{Duration, Instant};

use fleet::{Client, connect_h2, fast, metric, real_time, request, text, until_metric, with_fleet};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sim_server::SimOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

fn endless(stream: bool) -> String {
    json!({"stream": stream, "max_tokens": 5_000, "ignore_eos": true, "messages": [{"role": "user", "content": "go on"}]})
        .to_string()
}

async fn fault(client: &mut Client, fault: Value) {
    client.post("/sim/fault", fault).await;
}

async fn fired(client: &mut Client, kind: &str) -> u64 {
    let (_, text) = client.text("GET", "/sim/fault", "").await;
    serde_json::from_str::<Value>(&text).unwrap()["fired"][kind].as_u64().unwrap()
}

#[test]
fn a_client_that_leaves_frees_its_place_at_once() {
    with_fleet(real_time(), async |addresses| {
        for stream in [true, false] {
            let mut client = Client::connect(addresses[0]).await;
            let body = endless(stream);
            let pending = client.try_send("POST", CHAT, &body);
            if stream {
                let mut response = pending.await.unwrap();
                response.body_mut().frame().await.unwrap().unwrap();
                until_metric(addresses[0], "vllm:num_requests_running", 1.0).await;
            } else {
                tokio::select! {
                    _ = pending => panic!("it is endless"),
                    () = until_metric(addresses[0], "vllm:num_requests_running", 1.0) => {}
                }
            }
            drop(client);
            until_metric(addresses[0], "vllm:num_requests_running", 0.0).await;
            assert_eq!(metric(addresses[0], "vllm:kv_cache_usage_perc").await, 0.0);
        }
    });
}

#[test]
fn a_client_that_waits_in_the_queue_and_leaves_is_forgotten() {
    with_fleet(SimOptions { max_num_seqs: 1, ..real_time() }, async |addresses| {
        let mut first = Client::connect(addresses[0]).await;
        let response = first.send("POST", CHAT, &endless(true)).await;
        until_metric(addresses[0], "vllm:num_requests_running", 1.0).await;
        let mut second = Client::connect(addresses[0]).await;
        let waiting = second.send("POST", CHAT, &endless(true)).await;
        until_metric(addresses[0], "vllm:num_requests_waiting", 1.0).await;
        drop((waiting, second));
        until_metric(addresses[0], "vllm:num_requests_waiting", 0.0).await;
        assert_eq!(metric(addresses[0], "vllm:num_requests_running").await, 1.0);
        drop((response, first));
        until_metric(addresses[0], "vllm:num_requests_running", 0.0).await;
    });
}

#[test]
fn an_h2_stream_that_is_dropped_frees_its_place_and_leaves_the_others() {
    with_fleet(real_time(), async |addresses| {
        let mut h2 = connect_h2(addresses[0]).await;
        let url = format!("http://{}{CHAT}", addresses[0]);
        let mut kept = h2.send_request(request("POST", &url, &endless(true))).await.unwrap();
        let left = h2.send_request(request("POST", &url, &endless(true))).await.unwrap();
        until_metric(addresses[0], "vllm:num_requests_running", 2.0).await;
        drop(left);
        until_metric(addresses[0], "vllm:num_requests_running", 1.0).await;
        kept.body_mut().frame().await.unwrap().unwrap();
    });
}

#[test]
fn each_token_arrives_when_it_is_made() {
    with_fleet(real_time(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let body = json!({"stream": true, "max_tokens": 10, "ignore_eos": true, "messages": [{"role": "user", "content": "hi"}]});
        let start = Instant::now();
        let mut response = client.send("POST", CHAT, &body.to_string()).await;
        let mut times = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            frame.unwrap();
            times.push(start.elapsed());
        }
        // 10.8 ms to the first, then nine of 18.15 ms: 174 ms in all, and the first long before the last.
        let (first, last) = (times[0], *times.last().unwrap());
        assert!(first < last / 3, "{times:?}");
        assert!(last >= Duration::from_micros(10_800 + 9 * 18_150), "{times:?}");
    });
}

#[test]
fn status_hits_as_often_as_asked_and_can_be_cleared() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let body = json!({"messages": [{"role": "user", "content": "hi"}]}).to_string();
        fault(&mut client, json!({"kind": "status", "status": 429, "count": 2})).await;
        assert_eq!(client.text("GET", "/health", "").await.0, 200, "only inference is hit");
        assert_eq!(client.text("POST", CHAT, &body).await.0, 429);
        assert_eq!(client.text("POST", CHAT, &body).await.0, 429);
        assert_eq!(client.text("POST", CHAT, &body).await.0, 200);
        assert_eq!(fired(&mut client, "status").await, 2);
        fault(&mut client, json!({"kind": "status", "path": "/health", "count": 100})).await;
        assert_eq!(client.text("GET", "/health", "").await.0, 503);
        client.text("DELETE", "/sim/fault", "").await;
        assert_eq!(client.text("GET", "/health", "").await.0, 200);
    });
}

#[test]
fn reset_cuts_the_stream_after_so_many_tokens() {
    with_fleet(fast(), async |addresses| {
        let mut admin = Client::connect(addresses[0]).await;
        fault(&mut admin, json!({"kind": "reset", "after_tokens": 3})).await;
        let mut stream = TcpStream::connect(addresses[0]).await.unwrap();
        let body = endless(true);
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let mut got = Vec::new();
        let error = loop {
            match stream.read_buf(&mut got).await {
                Ok(0) => panic!("a clean end"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let got = String::from_utf8(got).unwrap();
        assert_eq!(got.matches("data: ").count(), 1 + 3, "{got}");
        until_metric(addresses[0], "vllm:num_requests_running", 0.0).await;
        assert_eq!(fired(&mut admin, "reset").await, 1);
    });
}

#[test]
fn reset_hits_answers_that_do_not_stream_too() {
    with_fleet(fast(), async |addresses| {
        let mut admin = Client::connect(addresses[0]).await;
        for asked in [
            json!({"kind": "reset"}),
            json!({"kind": "reset", "after_tokens": 3}),
            json!({"kind": "reset", "after_ms": 5}),
        ] {
            fault(&mut admin, asked).await;
            let mut client = Client::connect(addresses[0]).await;
            assert!(client.try_send("POST", CHAT, &endless(false)).await.is_err());
        }
        assert_eq!(fired(&mut admin, "reset").await, 3);
        until_metric(addresses[0], "vllm:num_requests_running", 0.0).await;
    });
}

#[test]
fn stall_stops_in_the_middle_and_stays_connected() {
    with_fleet(fast(), async |addresses| {
        let mut admin = Client::connect(addresses[0]).await;
        fault(&mut admin, json!({"kind": "stall", "after_tokens": 2, "count": 2})).await;
        let mut client = Client::connect(addresses[0]).await;
        let mut response = client.send("POST", CHAT, &endless(true)).await;
        let mut said = String::new();
        let silence = async {
            while let Some(frame) = response.body_mut().frame().await {
                said += std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap();
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_millis(100), silence).await.is_err(),
            "it neither ends nor fails"
        );
        assert_eq!(said.matches("data: ").count(), 1 + 2);

        // Without a stream: the head promises more than comes.
        let body = json!({"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let mut client = Client::connect(addresses[0]).await;
        let mut response = client.send("POST", CHAT, &body).await;
        let promised: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let half = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap().len();
        assert_eq!(half, promised / 2);
        assert_eq!(fired(&mut admin, "stall").await, 2);
    });
}

#[test]
fn hang_never_answers() {
    with_fleet(fast(), async |addresses| {
        let mut admin = Client::connect(addresses[0]).await;
        fault(&mut admin, json!({"kind": "hang"})).await;
        let mut client = Client::connect(addresses[0]).await;
        let answer = client.try_send("POST", CHAT, "{}");
        assert!(tokio::time::timeout(Duration::from_millis(100), answer).await.is_err());
        assert_eq!(fired(&mut admin, "hang").await, 1);
    });
}

#[test]
fn slow_lasts_as_long_as_asked() {
    with_fleet(real_time(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let body = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        fault(&mut client, json!({"kind": "slow", "factor": 10})).await;
        let deadline = Instant::now() + Duration::from_secs(5);
        while fired(&mut client, "slow").await == 0 {
            assert!(Instant::now() < deadline);
        }
        let start = Instant::now();
        client.text("POST", CHAT, &body).await;
        assert!(start.elapsed() >= Duration::from_millis(108));
        client.text("DELETE", "/sim/fault", "").await;

        // Metrics tell for certain: the next first token takes the usual 11 ms.
        let before = metric(addresses[0], "vllm:time_to_first_token_seconds_sum").await;
        until_fast(&mut client, &body, addresses[0], before).await;
    });
}

/// Asks until a first token is made at the usual speed: the end of a slow fault takes effect in its own task.
async fn until_fast(client: &mut Client, body: &str, address: std::net::SocketAddr, mut before: f64) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        client.text("POST", CHAT, body).await;
        let now = metric(address, "vllm:time_to_first_token_seconds_sum").await;
        if now - before < 0.05 {
            return;
        }
        before = now;
        assert!(Instant::now() < deadline, "it stays slow");
    }
}

#[test]
fn a_crash_takes_all_connections_and_the_cache_with_it() {
    with_fleet(SimOptions { replicas: 2, block_size: 16, ..real_time() }, async |addresses| {
        let long = json!({"prompt": "x".repeat(400), "max_tokens": 1}).to_string();
        text(addresses[0], "POST", "/v1/completions", &long).await;
        let mut streaming = Client::connect(addresses[0]).await;
        let mut response = streaming.send("POST", CHAT, &endless(true)).await;
        response.body_mut().frame().await.unwrap().unwrap();

        // Asked for through the other replica: the crashed one can no longer be reached.
        let mut other = Client::connect(addresses[1]).await;
        fault(&mut other, json!({"kind": "crash", "replica": 0})).await;
        let end = async {
            loop {
                match response.body_mut().frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return true,
                    None => return false,
                }
            }
        };
        assert!(end.await, "the stream breaks off, it does not end");
        let deadline = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(addresses[0]).await.is_ok() {
            assert!(Instant::now() < deadline, "the port stays open");
        }
        assert_eq!(other.text("GET", "/health", "").await.0, 200);

        other.text("DELETE", "/sim/fault?replica=0", "").await;
        while TcpStream::connect(addresses[0]).await.is_err() {
            assert!(Instant::now() < deadline, "the port stays closed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(metric(addresses[0], "vllm:num_requests_running").await, 0.0);
        let (_, again) = text(addresses[0], "POST", "/v1/completions", &long).await;
        assert!(again.contains(r#""cached_tokens":0"#), "its cache is gone: {again}");
    });
}

#[test]
fn a_crash_can_end_by_itself() {
    with_fleet(fast(), async |addresses| {
        fault(&mut Client::connect(addresses[0]).await, json!({"kind": "crash", "for_ms": 50})).await;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Ok(mut stream) = TcpStream::connect(addresses[0]).await {
                _ = stream
                    .write_all(b"GET /sim/fault HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n")
                    .await;
                let mut answer = String::new();
                if stream.read_to_string(&mut answer).await.is_ok() && answer.contains(r#""crash":1"#) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "it does not come back");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn bad_faults_are_refused() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        for body in [
            "",
            "[]",
            r#"{"kind": "nothing"}"#,
            r#"{"kind": "status", "status": 7}"#,
            r#"{"kind": "hang", "replica": 9}"#,
        ] {
            let (status, error) = client.text("POST", "/sim/fault", body).await;
            assert_eq!(status, 400, "{body}: {error}");
        }
        assert_eq!(client.text("DELETE", "/sim/fault?replica=x", "").await.0, 400);
        assert_eq!(client.text("PUT", "/sim/fault", "").await.0, 404);
        let many = json!({"kind": "hang", "path": "/nowhere"}).to_string();
        let mut statuses = Vec::new();
        for _ in 0..65 {
            statuses.push(client.text("POST", "/sim/fault", &many).await.0);
        }
        assert_eq!((statuses[63], statuses[64]), (200, 400));
    });
}
