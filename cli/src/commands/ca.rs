//! `spotmux ca`: the authority of a cluster, certificates, tokens to join.

use std::net::SocketAddr;

use serde_json::json;
use shared::config::load::Loaded;
use shared::config::places;
use shared::net::credential::Credential;
use shared::net::identity::Role;
use shared::net::token::TokenStore;

use crate::args::{CaCommand, CaInitArgs, CaIssueArgs, CaRenewArgs, CaTokenArgs, IssueRole};
use crate::clock;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{Align, Table};
use crate::security;
use crate::session::Session;
use crate::shown;

/// Runs the command.
pub(crate) fn run(command: &CaCommand, session: &Session<'_>) -> Result<Exit, Failure> {
    match command {
        CaCommand::Init(args) => init(args, session),
        CaCommand::Issue(args) => issue(args, session),
        CaCommand::Token(args) => token(args, session),
        CaCommand::Renew(args) => renew(args, session),
    }
}

fn init(args: &CaInitArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    let done = security::ensure(&loaded)?;
    let mut table = Table::new(&[("file", Align::Left), ("state", Align::Left)]);
    let mut files = Vec::new();
    for (path, state) in &done {
        table.row([path.display().to_string(), state.as_str().to_owned()]);
        files.push(json!({ "file": path, "state": state.as_str() }));
    }
    output.result(
        &json!({ "cluster": loaded.config.cluster.name, "files": files }),
        &table.text(),
    )?;
    output.next(&[
        "spotmux up".into(),
        "spotmux ca token NODE   # for another machine".into(),
    ]);
    Ok(Exit::Done)
}

fn role(operator: bool) -> Role {
    if operator {
        Role::Client
    } else {
        Role::GpuActor
    }
}

fn issue(args: &CaIssueArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    let authority = security::authority(&loaded)?;
    let name = args
        .name()
        .ok_or_else(|| Failure::new(Exit::Usage, "NAME is missing"))?;
    let (role, file) = match args.role() {
        IssueRole::GpuActor => (Role::GpuActor, places::node(name)),
        IssueRole::Operator => (Role::Client, format!("{name}.pem")),
        IssueRole::Coordinator => (Role::Coordinator, places::COORDINATOR.to_owned()),
        IssueRole::MarketActor => (Role::MarketActor, places::MARKET.to_owned()),
    };
    let member = security::identity(&loaded, role, name.clone());
    let path = args.output.clone();
    let path = path.unwrap_or_else(|| security::directory(&loaded).join(file));
    if path.exists() {
        let message = format!(
            "{} is there already: nothing was overwritten",
            path.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let made = security::issue(&loaded, &authority, &member, &path)?;
    let hours = loaded.config.security.certificate_hours;
    let text = format!("{}: {member}, holds for {hours} hours", path.display());
    let told =
        json!({ "file": path, "identity": member.to_string(), "until": made.life.end.seconds() });
    output.result(&told, &text)?;
    output.note("the file holds a private key: whoever reads it is that member");
    Ok(Exit::Done)
}

fn token(args: &CaTokenArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    let token = made(&loaded, args)?;
    let minutes = loaded.config.security.token_minutes;
    let told = json!({ "token": token, "name": args.name, "minutes": minutes });
    output.result(&told, &token)?;
    output.note(format!(
        "lets {} in once, within {minutes} minutes; it is not shown again",
        args.name
    ));
    let role = if args.operator {
        " --role operator"
    } else {
        ""
    };
    let listen = loaded.config.coordinator.listen;
    let place = reached(listen);
    if listen.ip().is_unspecified() {
        output.note(format!(
            "HOST below is the name or address of the coordinator's machine as that machine reaches it: the coordinator \
             listens at all of its addresses ({listen})"
        ));
    }
    output.next(&[format!(
        "spotmux join --coordinator {place} --token - --name {}{role}   # on that machine",
        args.name
    )]);
    Ok(Exit::Done)
}

/// Where another machine reaches who listens there, as far as that says.
fn reached(listen: SocketAddr) -> String {
    match listen.ip().is_unspecified() {
        true => format!("HOST:{}", listen.port()),
        false => listen.to_string(),
    }
}

fn renew(args: &CaRenewArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let quic = session.connect(&args.cluster)?;
    let held = Credential::load(quic.credential()).or_exit(Exit::BadInput)?;
    let fresh = quic.renew(&held)?;
    let left = shown::span(fresh.life.end.since(clock::now()));
    let path = quic.credential();
    let told = json!({
        "file": path,
        "identity": fresh.identity.to_string(),
        "until": fresh.life.end.seconds(),
    });
    let text = format!("{}: {}, holds for {left}", path.display(), fresh.identity);
    session.output.result(&told, &text)?;
    Ok(Exit::Done)
}

fn made(loaded: &Loaded, args: &CaTokenArgs) -> Result<String, Failure> {
    let authority = security::authority(loaded)?;
    let member = security::identity(loaded, role(args.operator), args.name.clone());
    let folder = security::directory(loaded).join(places::TOKENS);
    security::private_folder(&folder)?;
    let expires = clock::now().plus(loaded.config.security.token_life());
    let token = TokenStore::new(&folder)
        .make(&member, authority.fingerprint(), expires)
        .or_exit(Exit::Internal)?;
    Ok(token.reveal())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use clap::Parser;
    use shared::ids::NodeName;

    use super::*;
    use crate::args::{Args, ClusterArgs, Command};
    use crate::desk::Terminal;
    use crate::render::Output;
    use crate::settings::Settings;

    #[test]
    fn all_addresses_are_no_address_to_join_at() {
        for (listen, told) in [
            ("0.0.0.0:7420", "HOST:7420"),
            ("[::]:7421", "HOST:7421"),
            ("10.0.0.1:7420", "10.0.0.1:7420"),
        ] {
            assert_eq!(reached(listen.parse().unwrap()), told);
        }
    }

    #[test]
    fn certificates_and_tokens_are_made_for_whom_they_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        fs::write(&path, "").unwrap();
        let cluster = ClusterArgs {
            config: Some(path),
            set: Vec::new(),
        };
        let output = Output::new(false, true);
        let settings = Settings::default();
        let session = Session::new(
            &settings,
            &output,
            &Terminal,
            ClusterArgs::default(),
            |_, _| Ok(Exit::Done),
        );
        let run = |command: CaCommand| run(&command, &session);
        let issue = |flags: &[&str]| {
            let config = cluster.config.as_ref().unwrap().to_str().unwrap();
            let words = ["spotmux", "ca", "issue", "--config", config];
            let args = Args::try_parse_from(words.iter().chain(flags)).unwrap();
            match args.command {
                Command::Ca(command) => command,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(run(issue(&["n4"])).unwrap_err().exit, Exit::NotFound);
        let init = CaInitArgs {
            cluster: cluster.clone(),
        };
        run(CaCommand::Init(init)).unwrap();
        run(issue(&["--role", "gpu-actor", "--name", "n4"])).unwrap();
        assert!(
            run(issue(&["n4"]))
                .unwrap_err()
                .message()
                .contains("nothing was overwritten")
        );
        let place = folder.path().join("alice.pem");
        let out = place.to_str().unwrap();
        for (flags, role) in [
            (["--operator", "n4", "-o", out].as_slice(), "client"),
            (&["--role", "operator", "n4", "-o", out], "client"),
            (&["--role", "market-actor", "n4", "-o", out], "market-actor"),
            (&["--role", "coordinator", "n4", "-o", out], "coordinator"),
        ] {
            run(issue(flags)).unwrap();
            let identity = Credential::load(&place).unwrap().identity;
            assert_eq!(identity.to_string(), format!("spotmux://local/{role}/n4"));
            fs::remove_file(&place).unwrap();
        }
        let token = CaTokenArgs {
            name: NodeName::new("n5").unwrap(),
            operator: false,
            cluster: cluster.clone(),
        };
        let loaded = cluster_file::load(&cluster, &settings).unwrap();
        let word = made(&loaded, &token).unwrap();
        let tokens = TokenStore::new(&security::directory(&loaded).join(places::TOKENS));
        let joined = tokens
            .redeem(&word.parse().unwrap(), clock::now(), |_| Ok(()))
            .unwrap();
        assert_eq!(joined.to_string(), "spotmux://local/gpu-actor/n5");
    }
}
