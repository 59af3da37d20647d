//! Watched files: replaced, half written, removed, behind links.

mod rig;

use std::time::Duration;

use discovery::{FileWatch, read_api_key};
use rig::{DEADLINE, Folder, Run, config, link, quick};

fn list(hosts: &[&str]) -> String {
    let items: String = hosts.iter().map(|host| format!("  - url: http://{host}\n")).collect();
    format!("upstreams:\n{items}")
}

fn watching(folder: &Folder, name: &str) -> String {
    format!("upstream_files: [{}]", folder.path(name).display())
}

#[tokio::test]
async fn a_replaced_file_changes_the_list() {
    let folder = Folder::new("replaced");
    folder.replace("list.yaml", &list(&["a", "b"]));
    let mut run = Run::start(&watching(&folder, "list.yaml"), quick()).await;
    assert_eq!(run.now(), ["engine-1=a:80", "engine-2=b:80"]);
    folder.replace("list.yaml", &list(&["b", "c"]));
    run.until(&["engine-2=b:80", "engine-1=c:80"]).await;
    // In place, as some people do, to the same length.
    std::fs::write(folder.path("list.yaml"), list(&["b", "d"])).unwrap();
    run.until(&["engine-2=b:80", "engine-1=d:80"]).await;
    folder.replace("list.yaml", "upstreams: []");
    run.until(&[]).await;
}

#[tokio::test]
async fn a_half_written_file_is_refused_and_the_old_list_stays() {
    let folder = Folder::new("half");
    let text = "upstreams:\n  - {url: http://a, name: x}\n";
    folder.replace("list.yaml", text);
    let mut run = Run::start(&watching(&folder, "list.yaml"), quick()).await;
    run.until(&["x=a:80"]).await;
    std::fs::write(folder.path("list.yaml"), "upstreams:\n  - {url: http://b, na").unwrap();
    run.until_told("list.yaml:2:").await;
    assert_eq!(run.now(), ["x=a:80"]);
    std::fs::write(folder.path("list.yaml"), "").unwrap();
    run.until_told("`upstreams` is missing").await;
    assert_eq!(run.now(), ["x=a:80"]);
    std::fs::write(folder.path("list.yaml"), "upstreams:\n  - {url: http://b, name: y}\n").unwrap();
    run.until(&["y=b:80"]).await;
}

#[tokio::test]
async fn a_removed_file_leaves_its_list_and_is_told_once() {
    let folder = Folder::new("removed");
    folder.replace("list.yaml", &list(&["a"]));
    let mut run = Run::start(&watching(&folder, "list.yaml"), quick()).await;
    std::fs::remove_file(folder.path("list.yaml")).unwrap();
    run.until_told("No such file").await;
    assert_eq!(run.now(), ["engine-1=a:80"]);
    folder.replace("list.yaml", &list(&["b"]));
    run.until(&["engine-1=b:80"]).await;
    assert_eq!(run.told_count("No such file"), 1, "{}", run.told());
}

#[tokio::test]
async fn a_file_that_is_missing_at_the_start_is_taken_in_when_it_comes() {
    let folder = Folder::new("late");
    let mut run = Run::start(&watching(&folder, "list.yaml"), quick()).await;
    run.until_told("list.yaml is refused").await;
    assert_eq!(run.now(), [""; 0]);
    folder.replace("list.yaml", &list(&["a"]));
    run.until(&["engine-1=a:80"]).await;
}

#[tokio::test]
async fn a_config_maps_link_is_followed() {
    let folder = Folder::new("configmap");
    for (version, host) in [("v1", "a"), ("v2", "b")] {
        std::fs::create_dir(folder.path(version)).unwrap();
        std::fs::write(folder.path(version).join("list.yaml"), list(&[host])).unwrap();
    }
    link("v1", &folder.path("..data"));
    link("..data/list.yaml", &folder.path("list.yaml"));
    let mut run = Run::start(&watching(&folder, "list.yaml"), quick()).await;
    run.until(&["engine-1=a:80"]).await;
    link("v2", &folder.path("..data.new"));
    std::fs::rename(folder.path("..data.new"), folder.path("..data")).unwrap();
    run.until(&["engine-1=b:80"]).await;
}

#[tokio::test]
async fn the_first_place_counts() {
    let folder = Folder::new("places");
    folder.replace("list.yaml", "upstreams: [{url: http://a, weight: 7}, {url: http://c, name: x}]");
    let text = format!(
        "upstreams: [{{url: http://a}}, {{url: http://b, name: x}}]\n{}",
        watching(&folder, "list.yaml")
    );
    let mut run = Run::start(&text, quick()).await;
    run.until(&["engine-1=a:80", "x=b:80"]).await;
    run.until_told("has the name `x` already").await;
    assert_eq!(run.endpoints.borrow()[0].upstream.attributes.weight, 1.0);
}

#[tokio::test]
async fn a_reload_keeps_what_stays_and_shows_no_gap() {
    let folder = Folder::new("reload");
    folder.replace("one.yaml", &list(&["a"]));
    folder.replace("two.yaml", &list(&["b"]));
    let one = watching(&folder, "one.yaml");
    let mut run = Run::start(&one, quick()).await;
    let both = format!(
        "upstreams: [{{url: http://c}}]\nupstream_files: [{}, {}]",
        folder.path("two.yaml").display(),
        folder.path("one.yaml").display()
    );
    run.endpoints.mark_unchanged();
    run.sources.reload(&config(&both)).await;
    assert_eq!(run.now(), ["engine-2=c:80", "engine-3=b:80", "engine-1=a:80"]);
    run.sources.reload(&config(&one)).await;
    assert_eq!(run.now(), ["engine-1=a:80"]);
    // What is no longer watched says nothing any more.
    folder.replace("two.yaml", &list(&["x"]));
    folder.replace("one.yaml", &list(&["y"]));
    run.until(&["engine-1=y:80"]).await;
}

async fn next(watch: &mut FileWatch) -> std::io::Result<String> {
    let contents = tokio::time::timeout(DEADLINE, watch.changed()).await.unwrap()?;
    Ok(String::from_utf8(contents).unwrap())
}

#[tokio::test]
async fn a_watch_tells_each_content_once() {
    let folder = Folder::new("watch");
    folder.replace("file", "one");
    let path = folder.path("file");
    let poll = Duration::from_millis(5);
    let mut watch = FileWatch::new(&path, poll);
    assert_eq!(next(&mut watch).await.unwrap(), "one");
    let mut known = FileWatch::known(&path, b"one", poll);
    folder.replace("file", "one");
    folder.replace("file", "two");
    assert_eq!(next(&mut watch).await.unwrap(), "two");
    assert_eq!(next(&mut known).await.unwrap(), "two");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(next(&mut watch).await.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    std::fs::create_dir(&path).unwrap();
    assert!(next(&mut watch).await.unwrap_err().to_string().contains("not a regular file"));
}

#[tokio::test]
async fn a_dropped_wait_loses_no_change() {
    let folder = Folder::new("dropped");
    folder.replace("file", "one");
    let path = folder.path("file");
    let mut watch = FileWatch::known(&path, b"one", Duration::from_millis(30));
    let brief = Duration::from_millis(7);
    assert!(tokio::time::timeout(brief, watch.changed()).await.is_err());
    // With a time stamp of long ago nothing looks fresh.
    std::fs::write(folder.path("new"), "two").unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    std::fs::File::open(folder.path("new")).unwrap().set_modified(old).unwrap();
    std::fs::rename(folder.path("new"), &path).unwrap();
    // Each wait is dropped long before the next poll. Fewer than a blind comparison's ten seconds.
    let mut contents = None;
    for _ in 0..700 {
        if let Ok(read) = tokio::time::timeout(brief, watch.changed()).await {
            contents = Some(read.unwrap());
            break;
        }
    }
    assert_eq!(contents.as_deref(), Some(&b"two"[..]));
}

#[test]
fn a_key_is_read_and_not_shown() {
    let folder = Folder::new("key");
    std::fs::write(folder.path("key"), "sk-1234\n").unwrap();
    std::fs::write(folder.path("bad"), "sk-1234\nsk-5678\n").unwrap();
    let key = |place: String| {
        let config = config(&format!("upstreams: [{{url: http://a, api_key: {place}}}]"));
        let key = config.upstreams[0].attributes.api_key.clone().unwrap();
        read_api_key(&key).map_err(|error| error.to_string())
    };
    let file = |name: &str| key(format!("{{file: {}}}", folder.path(name).display()));
    let secret = file("key").unwrap();
    assert_eq!(secret.expose(), "sk-1234");
    assert!(!format!("{secret:?}").contains("1234"));
    let bad = file("bad").unwrap_err();
    assert!(bad.contains("holds no key") && !bad.contains("1234"), "{bad}");
    assert!(file("none").unwrap_err().contains("cannot be read"));
    let unset = key("{env: RIDGE_TEST_NOT_SET}".to_owned()).unwrap_err();
    assert!(unset.contains("RIDGE_TEST_NOT_SET is not set"), "{unset}");
}
