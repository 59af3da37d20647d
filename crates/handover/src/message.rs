//! What goes between the two processes: one message with all sockets, and what each is for.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most sockets of one hand-over. The kernel takes 253 in a message; a gateway has two or three.
pub const SOCKETS_MAX: usize = 64;

/// Most bytes of the message besides the sockets.
const TEXT_MAX: usize = 16 << 10;

/// First line: another format gets another number, and an old program refuses it.
const FORMAT: &str = "ridge sockets 1";

/// What is served on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Clients' requests.
    Data,
    /// Operators' questions.
    Admin,
}

/// Who opened a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The program, as its configuration names this address. With port 0 the socket's own address differs.
    Configuration(String),
    /// systemd.
    Systemd,
}

/// A listening socket.
#[derive(Debug)]
pub struct Socket {
    /// What is served on it.
    pub role: Role,
    /// Who opened it.
    pub from: From,
    /// The socket itself.
    pub socket: OwnedFd,
}

/// Sends all sockets in one message.
pub fn send(to: BorrowedFd<'_>, sockets: &[Socket]) -> io::Result<()> {
    if sockets.len() > SOCKETS_MAX {
        let text =
            format!("{} listening sockets are more than the {SOCKETS_MAX} of a hand-over", sockets.len());
        return Err(io::Error::other(text));
    }
    let mut text = format!("{FORMAT}\n");
    for socket in sockets {
        let role = match socket.role {
            Role::Data => "data",
            Role::Admin => "admin",
        };
        match &socket.from {
            From::Configuration(address) => text.push_str(&format!("{role} configuration {address}\n")),
            From::Systemd => text.push_str(&format!("{role} systemd\n")),
        }
    }
    if text.len() > TEXT_MAX {
        return Err(io::Error::other("the addresses of the listening sockets are too long for a hand-over"));
    }
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let sent = sendmsg(to, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    if sent < text.len() {
        return Err(io::Error::other("the message with the listening sockets was cut"));
    }
    Ok(())
}

/// Receives what [`send`] sent; waits for it.
pub fn receive(source: BorrowedFd<'_>) -> io::Result<Vec<Socket>> {
    let mut text = vec![0; TEXT_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(source, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("not all sockets came: raise the limit on open files (ulimit -n)"));
    }
    let text = std::str::from_utf8(&text[..got.bytes]).map_err(|_| malformed("it is no text"))?;
    pair(text, descriptors)
}

fn malformed(why: &str) -> io::Error {
    io::Error::other(format!("the message with the listening sockets is not understood: {why}"))
}

/// Puts each line to its socket.
fn pair(text: &str, descriptors: Vec<OwnedFd>) -> io::Result<Vec<Socket>> {
    let mut lines = text.lines();
    if lines.next() != Some(FORMAT) {
        return Err(malformed("the two programs do not know each other's format; restart instead"));
    }
    let lines: Vec<&str> = lines.collect();
    if lines.len() != descriptors.len() {
        return Err(malformed(&format!("{} lines for {} sockets", lines.len(), descriptors.len())));
    }
    let read = |line: &str, socket| {
        let (role, rest) = line.split_once(' ')?;
        let role = match role {
            "data" => Role::Data,
            "admin" => Role::Admin,
            _ => return None,
        };
        let from = match rest.split_once(' ') {
            Some(("configuration", address)) => From::Configuration(address.to_owned()),
            None if rest == "systemd" => From::Systemd,
            _ => return None,
        };
        Some(Socket { role, from, socket })
    };
    let mut sockets = Vec::with_capacity(lines.len());
    for (line, descriptor) in lines.into_iter().zip(descriptors) {
        sockets.push(read(line, descriptor).ok_or_else(|| malformed(line))?);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn listener(role: Role, from: From) -> (Socket, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        (Socket { role, from, socket: listener.into() }, port)
    }

    #[test]
    fn sockets_arrive_as_they_were_sent() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (data, data_port) = listener(Role::Data, From::Configuration("[::1]:0".into()));
        let (admin, admin_port) = listener(Role::Admin, From::Systemd);
        send(here.as_fd(), &[data, admin]).expect("to send");
        let mut came = receive(there.as_fd()).expect("to receive").into_iter();
        for (role, from, port) in [
            (Role::Data, From::Configuration("[::1]:0".into()), data_port),
            (Role::Admin, From::Systemd, admin_port),
        ] {
            let socket = came.next().expect("a socket");
            assert_eq!((socket.role, socket.from), (role, from));
            let listener = TcpListener::from(socket.socket);
            assert_eq!(listener.local_addr().expect("its address").port(), port);
        }
        assert!(came.next().is_none());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["", "ridge sockets 2\n", "ridge sockets 1\ndata systemd\n", "ridge sockets 1\nx y\n"] {
            let descriptors = Vec::new();
            assert!(pair(text, descriptors).is_err(), "{text:?}");
        }
        for line in ["other systemd", "data", "data upstart", "admin configuration"] {
            let (socket, _) = listener(Role::Data, From::Systemd);
            assert!(pair(&format!("{FORMAT}\n{line}\n"), vec![socket.socket]).is_err(), "{line:?}");
        }
        let (here, _there) = UnixStream::pair().expect("a pair");
        let many: Vec<_> = (0..=SOCKETS_MAX).map(|_| listener(Role::Data, From::Systemd).0).collect();
        assert!(send(here.as_fd(), &many).is_err());
    }
}
