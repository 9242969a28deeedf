//! `spotmux join`: a machine without a certificate becomes a member of a cluster, by a one-time token.

mod own_file;

use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use shared::config::joining;
use shared::config::load::{self, Loaded};
use shared::config::places;
use shared::net::authority::fingerprint;
use shared::net::credential::Credential;
use shared::net::endpoint::EndpointSettings;
use shared::net::identity::Role;
use shared::net::renew::{self, Joined, Joiner, RenewError};
use shared::net::token::Token;
use tokio::runtime::Builder;

use self::own_file::{beside, own, write};
use crate::args::{JoinArgs, JoinRole};
use crate::clock;
use crate::cluster_file;
use crate::control::quic;
use crate::exit::{Exit, Failure, OrExit};
use crate::render;
use crate::security;
use crate::session::Session;

/// Longest text taken for a token.
const LONGEST: u64 = 4 << 10;

/// Runs the command.
pub(crate) fn run(args: &JoinArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let token = token(&args.token)?;
    let coordinator = resolved(&args.coordinator)?;
    let file = args
        .config
        .clone()
        .or_else(|| session.settings.config.clone())
        .unwrap_or_else(|| PathBuf::from(cluster_file::NAME));
    // All that can be refused here is, before the token is shown: a refusal must not use it up.
    let there = match file.exists() {
        true => Some(load::load(&file, [], &[]).or_exit(Exit::BadInput)?),
        false => None,
    };
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let directory = match &there {
        Some(loaded) => security::directory(loaded),
        None => folder.join(&shared::config::schema::SecuritySection::default().directory),
    };
    let role = role(args.role);
    let place = directory.join(match role {
        Role::Client => places::OPERATOR.to_owned(),
        _ => places::node(&args.name),
    });
    let fresh = match there {
        Some(_) => None,
        None => Some((own(args, coordinator)?, beside(&file)?)),
    };
    not_held(&place, &token, role, args, fresh.is_some())?;
    security::private_folder(&directory)?;
    let joiner = Joiner {
        cluster: there
            .as_ref()
            .map(|loaded| loaded.config.cluster.name.clone()),
        role,
        name: args.name.clone(),
    };
    let joined = joined(coordinator, &token, &joiner)?;
    joined
        .credential
        .save(&place)
        .or_exit(Exit::Internal)
        .map_err(|failure| again(failure, args))?;
    if let Some(loaded) = &there {
        coordinator_is(loaded, coordinator, output);
    }
    let written = fresh.is_some();
    if let Some((own, beside)) = fresh {
        let made = joining::file(&joined.settings, &own)
            .or_exit(Exit::Coordinator)
            .map_err(|failure| again(failure, args))?;
        for key in &made.left_out {
            output.note(format!(
                "note: the coordinator tells of {key}, which no setting here is: it was left out; is one of them of \
                 another version?"
            ));
        }
        write(beside, &file, &made.text).map_err(|failure| again(failure, args))?;
    }
    told(args, session, &file, &place, written, &joined)
}

fn told(
    args: &JoinArgs,
    session: &Session<'_>,
    file: &Path,
    place: &Path,
    written: bool,
    joined: &Joined,
) -> Result<Exit, Failure> {
    let output = session.output;
    let identity = joined.credential.identity.to_string();
    let value = json!({
        "identity": identity,
        "certificate": place,
        "until": joined.credential.life.end.seconds(),
        "config": file,
        "config_written": written,
    });
    let kept = if written { "written" } else { "kept as it was" };
    output.result(
        &value,
        &format!(
            "{identity}\ncertificate  {}\nsettings     {} ({kept})",
            place.display(),
            file.display()
        ),
    )?;
    let loaded = load::load(file, [], &[]).or_exit(Exit::BadInput)?;
    let url = &loaded.config.store.url;
    if args.role == JoinRole::GpuActor && !url.contains("://") && !loaded.path_of(url).exists() {
        output.note(format!(
            "note: the store is the folder {url} of the coordinator's machine, which is absent here: \
             mount it at the same place, or give the cluster an s3:// store"
        ));
    }
    let config = render::shell_word(&file.display().to_string());
    output.next(&[match args.role {
        JoinRole::GpuActor => format!("spotmux gpu-actor --name {} --config {config}", args.name),
        JoinRole::Operator => format!("spotmux status --config {config}"),
    }]);
    Ok(Exit::Done)
}

fn role(role: JoinRole) -> Role {
    match role {
        JoinRole::GpuActor => Role::GpuActor,
        JoinRole::Operator => Role::Client,
    }
}

fn token(word: &str) -> Result<Token, Failure> {
    let mut text = word.to_owned();
    if word == "-" {
        text.clear();
        std::io::stdin()
            .take(LONGEST)
            .read_to_string(&mut text)
            .context("cannot read the token from standard input")
            .or_exit(Exit::BadInput)?;
    }
    text.parse::<Token>().or_exit(Exit::BadInput)
}

fn resolved(place: &str) -> Result<SocketAddr, Failure> {
    let found = place
        .to_socket_addrs()
        .map(|mut addresses| addresses.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::new(
            Exit::Unreachable,
            format!("{place} names no machine"),
        )),
        Err(error) => Err(Failure::new(
            Exit::Unreachable,
            format!("--coordinator {place}: {error}"),
        )
        .hint("write it as HOST:PORT, with the port of coordinator.listen")),
    }
}

/// A certificate that still holds is not replaced; but by one of the same authority for the same member, where the
/// file of settings is what is missing: an earlier join was cut off before it wrote that.
fn not_held(
    place: &Path,
    token: &Token,
    role: Role,
    args: &JoinArgs,
    unfinished: bool,
) -> Result<(), Failure> {
    let held = match Credential::load(place) {
        Ok(held) if clock::now() < held.life.end => held,
        _ => return Ok(()),
    };
    let same = held.identity.role == role
        && held.identity.name == args.name
        && fingerprint(held.authority()) == token.fingerprint;
    if unfinished && same {
        return Ok(());
    }
    let message = format!(
        "{} is there already and holds: it is {}; the token was not used",
        place.display(),
        held.identity
    );
    Err(Failure::new(Exit::Conflict, message).hint("to join anew, move the file away first"))
}

fn joined(coordinator: SocketAddr, token: &Token, joiner: &Joiner) -> Result<Joined, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the system refuses a runtime")
        .or_exit(Exit::Internal)?;
    let settings = EndpointSettings::at(quic::source(coordinator));
    let joined = runtime.block_on(async {
        let join = renew::join(&settings, coordinator, token, joiner);
        tokio::time::timeout(quic::PATIENCE, join).await
    });
    let failed = |exit, error: anyhow::Error| Failure {
        exit,
        error: error.context(format!("cannot join at {coordinator}")),
        hints: Vec::new(),
    };
    match joined {
        Ok(Ok(joined)) => Ok(joined),
        Ok(Err(error)) => {
            let exit = match &error {
                RenewError::Refused(refusal) => refusal.code.into(),
                RenewError::Net(error) => quic::exit_of(error),
                RenewError::File(_) => Exit::Internal,
                _ => Exit::Coordinator,
            };
            Err(failed(exit, error.into()))
        }
        Err(_) => {
            let silent = anyhow::anyhow!("nobody answers within {} s", quic::PATIENCE.as_secs());
            Err(failed(Exit::Unreachable, silent)
                .hint("is the coordinator up, and does its UDP port reach this machine?"))
        }
    }
}

fn coordinator_is(loaded: &Loaded, coordinator: SocketAddr, output: &render::Output) {
    let said = loaded.config.coordinator.listen;
    if said != coordinator {
        output.note(format!(
            "note: coordinator.listen ({}) is {said}, and this machine joined at {coordinator}",
            loaded.origin("coordinator.listen")
        ));
    }
}

/// The way on from a join that used up its token and could not write what it was given.
fn again(failure: Failure, args: &JoinArgs) -> Failure {
    let operator = match args.role {
        JoinRole::GpuActor => "",
        JoinRole::Operator => " --operator",
    };
    failure.hint(format!(
        "then join again, with another token: `spotmux ca token {}{operator}` where the authority is",
        args.name
    ))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::net::authority::Authority;
    use shared::net::identity::Identity;
    use shared::net::token::KeptToken;
    use shared::units::Micros;

    use super::*;

    #[test]
    fn words_that_are_no_token_or_no_place_are_refused() {
        assert_eq!(
            token("spotmux-join-1.a.b").unwrap_err().exit,
            Exit::BadInput
        );
        assert_eq!(resolved("nowhere").unwrap_err().exit, Exit::Unreachable);
        assert_eq!(
            resolved("127.0.0.1:7").unwrap(),
            "127.0.0.1:7".parse().unwrap()
        );
    }

    pub(super) fn args() -> JoinArgs {
        JoinArgs {
            coordinator: "127.0.0.1:7".into(),
            token: String::new(),
            role: JoinRole::GpuActor,
            name: "n3".parse().unwrap(),
            listen: None,
            advertise: None,
            threads: None,
            memory_mib: None,
            config: None,
        }
    }

    #[test]
    fn a_certificate_gives_way_only_to_the_same_member_that_has_no_settings_yet() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("node-n3.pem");
        let (now, hour) = (clock::now(), Micros::of_millis(3_600_000));
        let authority = |name: &str| {
            Authority::create(&root.path().join(name), &"c".parse().unwrap(), now).unwrap()
        };
        let (own, other) = (authority("own"), authority("other"));
        let member = Identity {
            cluster: "c".parse().unwrap(),
            role: Role::GpuActor,
            name: "n3".parse().unwrap(),
        };
        let token = |of: &Authority| {
            KeptToken::make(&member, of.fingerprint(), now.plus(hour))
                .unwrap()
                .0
        };
        let (own_token, other_token) = (token(&own), token(&other));
        let refused = |token: &Token, role, unfinished| {
            not_held(&place, token, role, &args(), unfinished).is_err()
        };
        assert!(!refused(&own_token, Role::GpuActor, false), "none is there");
        let held = own.issue(&member, hour, now).unwrap();
        held.save(&place).unwrap();
        assert!(refused(&own_token, Role::GpuActor, false));
        assert!(refused(&own_token, Role::Client, true));
        assert!(refused(&other_token, Role::GpuActor, true));
        assert!(!refused(&own_token, Role::GpuActor, true));
    }
}
