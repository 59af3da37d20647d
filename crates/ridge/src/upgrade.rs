//! Listening sockets that outlive a process: those that were there at the start, and those that the next one gets.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use gateway::{Gateway, Observer};
use handover::{From, Program, Refused, Role, Socket, Successor};

/// How often it is looked whether the gateway is ready to take over.
const READY_LOOK: Duration = Duration::from_millis(2);

/// Where to listen, with what is open already.
pub struct Listeners {
    /// Clients' addresses.
    pub listen: Vec<SocketAddr>,
    /// Open listeners for some of them.
    pub inherited: Vec<(SocketAddr, Arc<TcpListener>)>,
    /// The admin listener, where it is open.
    pub admin: Option<TcpListener>,
    systemd_data: bool,
    systemd_admin: bool,
}

/// Finds each inherited socket its place. Those of systemd stand in place of the configuration's addresses; those of an
/// older process are used where the configuration still has their address, and let go otherwise.
pub fn sort(sockets: Vec<Socket>, config: &Config) -> Result<Listeners, String> {
    let mut out = Listeners {
        listen: config.listen.clone(),
        inherited: Vec::new(),
        admin: None,
        systemd_data: false,
        systemd_admin: false,
    };
    let admin = config.admin_addr();
    for Socket { role, from, socket } in sockets {
        let listener = TcpListener::from(socket);
        let local = listener
            .local_addr()
            .map_err(|error| format!("error: an inherited socket is of no use: {error}; give TCP sockets"))?;
        match (role, from) {
            (Role::Data, From::Systemd) => {
                if !std::mem::replace(&mut out.systemd_data, true) {
                    out.listen.clear();
                }
                out.listen.push(local);
                out.inherited.push((local, Arc::new(listener)));
            }
            (Role::Data, From::Configuration(address)) => {
                if let Ok(address) = address.parse()
                    && config.listen.iter().chain(&config.listen_tls).any(|wanted| *wanted == address)
                {
                    out.inherited.push((address, Arc::new(listener)));
                }
            }
            (Role::Admin, From::Systemd) if admin.is_some() => {
                out.systemd_admin = true;
                out.admin = Some(listener);
            }
            (Role::Admin, From::Configuration(address)) => {
                if admin.is_some_and(|admin| admin.to_string() == address) {
                    out.admin = Some(listener);
                }
            }
            (Role::Admin, From::Systemd) => {}
        }
    }
    Ok(out)
}

/// What an upgrade needs: kept from the start of the process.
pub struct Upgrades {
    program: std::io::Result<Program>,
    systemd_data: bool,
    systemd_admin: bool,
    admin: Option<(SocketAddr, TcpListener)>,
}

impl Upgrades {
    /// To start the program that this process is, or what is in its place by then.
    pub fn new(program: std::io::Result<Program>, listeners: &Listeners) -> Self {
        let Listeners { systemd_data, systemd_admin, .. } = *listeners;
        Self { program, systemd_data, systemd_admin, admin: None }
    }

    /// Remembers the admin listener, by the configuration's address.
    pub fn admin(&mut self, address: SocketAddr, listener: &TcpListener) -> std::io::Result<()> {
        self.admin = Some((address, listener.try_clone()?));
        Ok(())
    }

    /// Starts the next process, which has `bound` to be ready.
    pub fn start(&self, gateway: &Gateway, bound: Duration) -> Result<Successor, String> {
        if std::process::id() == 1 {
            return Err(
                "this is process 1, and a container ends with it: start a new container instead".into()
            );
        }
        let program =
            self.program.as_ref().map_err(|error| format!("its own program is unknown: {error}"))?;
        let sockets =
            self.sockets(gateway).map_err(|error| format!("the listeners cannot be shared: {error}"))?;
        Successor::start(program, &sockets, bound).map_err(|error| error.to_string())
    }

    fn sockets(&self, gateway: &Gateway) -> std::io::Result<Vec<Socket>> {
        let from = |systemd, address: SocketAddr| match systemd {
            true => From::Systemd,
            false => From::Configuration(address.to_string()),
        };
        let mut sockets: Vec<Socket> = gateway
            .listeners()?
            .into_iter()
            .map(|(address, listener)| Socket {
                role: Role::Data,
                from: from(self.systemd_data, address),
                socket: listener.into(),
            })
            .collect();
        sockets.extend(gateway.tls_listeners()?.into_iter().map(|(address, listener)| Socket {
            role: Role::Data,
            from: From::Configuration(address.to_string()), // systemd's are without TLS
            socket: listener.into(),
        }));
        if let Some((address, listener)) = &self.admin {
            sockets.push(Socket {
                role: Role::Admin,
                from: from(self.systemd_admin, *address),
                socket: listener.try_clone()?.into(),
            });
        }
        Ok(sockets)
    }
}

/// Waits until the next process is ready; for ever when there is none.
pub async fn outcome(upgrade: &mut Option<Successor>) -> Result<u32, Refused> {
    match upgrade {
        Some(successor) => successor.ready().await.map(|()| successor.id()),
        None => std::future::pending().await,
    }
}

/// Waits until an endpoint has answered.
pub async fn ready(gateway: &Observer) {
    while !gateway.is_ready() {
        tokio::time::sleep(READY_LOOK).await;
    }
}
