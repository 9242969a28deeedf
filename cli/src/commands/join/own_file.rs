//! The file of settings that a machine which joins writes of itself and of what it is told.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::Context;
use shared::config::joining::{Own, OwnNode};
use tempfile::NamedTempFile;

use crate::args::{JoinArgs, JoinRole};
use crate::cluster_file;
use crate::control::quic;
use crate::exit::{Exit, Failure, OrExit};

/// Port of a node that names none.
const PORT: u16 = 7430;

/// What the machine says of itself: it listens where the coordinator sees it.
pub(super) fn own(args: &JoinArgs, coordinator: SocketAddr) -> Result<Own, Failure> {
    if args.role == JoinRole::Operator {
        return Ok(Own {
            coordinator,
            node: None,
        });
    }
    let listen = match args.listen {
        Some(listen) => listen,
        None => {
            // No packet is sent: the system only says which of its addresses would be used.
            let here = UdpSocket::bind(quic::source(coordinator)).and_then(|socket| {
                socket.connect(coordinator)?;
                socket.local_addr()
            });
            let here = here
                .context("which address of this machine reaches the coordinator is unknown: give --listen")
                .or_exit(Exit::Internal)?;
            SocketAddr::new(here.ip(), PORT)
        }
    };
    Ok(Own {
        coordinator,
        node: Some(OwnNode {
            name: args.name.clone(),
            listen,
            advertise: args.advertise,
            threads: args.threads,
            memory_mib: args.memory_mib,
        }),
    })
}

/// What becomes the file of settings: its folder can be written, then. Gone by itself when nothing comes of it.
pub(super) fn beside(file: &Path) -> Result<NamedTempFile, Failure> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cluster.").suffix(".partial");
    // It holds no secret.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
        .tempfile_in(folder)
        .with_context(|| {
            format!(
                "cannot write {} into {}; the token was not used",
                cluster_file::NAME,
                fs::canonicalize(folder)
                    .unwrap_or_else(|_| folder.into())
                    .display()
            )
        })
        .or_exit(Exit::Internal)
}

/// Writes the settings, and gives them their name unless something has it by now.
pub(super) fn write(mut beside: NamedTempFile, path: &Path, text: &str) -> Result<(), Failure> {
    let written = beside
        .write_all(text.as_bytes())
        .and_then(|()| beside.as_file().sync_all())
        .and_then(|()| {
            let kept = beside.persist_noclobber(path);
            kept.map(|_| ()).map_err(|refused| refused.error)
        });
    written
        .with_context(|| format!("cannot write {}; the certificate is there", path.display()))
        .or_exit(Exit::Internal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::tests::args;
    use super::*;

    #[test]
    fn a_node_listens_where_the_coordinator_is_reached_from() {
        let own = own(&args(), "127.0.0.1:7".parse().unwrap()).unwrap();
        let listen = own.node.unwrap().listen;
        assert_eq!(listen, "127.0.0.1:7430".parse().unwrap());
    }

    #[test]
    fn settings_appear_whole_and_replace_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cluster.toml");
        drop(beside(&file).unwrap());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        write(beside(&file).unwrap(), &file, "one").unwrap();
        let refused = write(beside(&file).unwrap(), &file, "two").unwrap_err();
        assert!(refused.message().contains("the certificate is there"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        let refused = beside(&root.path().join("absent/cluster.toml")).unwrap_err();
        assert!(refused.message().contains("the token was not used"));
    }
}
