//! The authority and certificates of a cluster on this machine.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use shared::config::load::Loaded;
use shared::config::places;
use shared::ids::NodeName;
use shared::net::authority::{Authority, fingerprint};
use shared::net::credential::Credential;
use shared::net::identity::{Identity, Role};
use shared::units::Micros;

use crate::clock;
use crate::exit::{Exit, Failure, OrExit};
use crate::shown;

/// What a file of certificates is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was there and still holds.
    Kept,
    /// It was made.
    Made,
    /// It was near its end, and made anew.
    Renewed,
}

impl State {
    /// In a word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Made => "made",
            Self::Renewed => "renewed",
        }
    }
}

/// The directory of certificates.
pub(crate) fn directory(loaded: &Loaded) -> PathBuf {
    loaded.path_of(&loaded.config.security.directory)
}

/// Whom processes of this machine are, each with its file: coordinator, operator, listed nodes, market actor.
pub(crate) fn members(loaded: &Loaded) -> Vec<(Identity, PathBuf)> {
    let directory = directory(loaded);
    let fixed = [
        (
            Role::Coordinator,
            "coordinator",
            places::COORDINATOR.to_owned(),
        ),
        (Role::Client, "operator", places::OPERATOR.to_owned()),
    ];
    let fixed = fixed.into_iter().filter_map(|(role, name, file)| {
        let name = NodeName::new(name).ok()?;
        Some((identity(loaded, role, name), directory.join(file)))
    });
    let nodes = loaded.config.node.iter().map(|node| {
        let file = directory.join(places::node(&node.name));
        (identity(loaded, Role::GpuActor, node.name.clone()), file)
    });
    let market = loaded.config.market.runs().then(|| {
        let name = NodeName::new("market").ok()?;
        let file = directory.join(places::MARKET);
        Some((identity(loaded, Role::MarketActor, name), file))
    });
    fixed.chain(nodes).chain(market.flatten()).collect()
}

/// A member of the cluster.
pub(crate) fn identity(loaded: &Loaded, role: Role, name: NodeName) -> Identity {
    let cluster = loaded.config.cluster.name.clone();
    Identity {
        cluster,
        role,
        name,
    }
}

/// The authority, if its file is here.
///
/// # Errors
/// [`Exit::NotFound`] when it is not, [`Exit::BadInput`] when it is of another cluster or unreadable.
pub(crate) fn authority(loaded: &Loaded) -> Result<Authority, Failure> {
    let path = directory(loaded).join(places::AUTHORITY);
    if !path.exists() {
        let message = format!(
            "{} is absent: this machine has no authority",
            path.display()
        );
        return Err(Failure::new(Exit::NotFound, message).hint("make it: spotmux ca init"));
    }
    let authority = Authority::load(&path).or_exit(Exit::BadInput)?;
    let (own, wanted) = (authority.cluster(), &loaded.config.cluster.name);
    if own != wanted {
        let message = format!(
            "{} is the authority of cluster {own}, and cluster.name ({}) is {wanted}: \
             name another security.directory, or the other cluster",
            path.display(),
            loaded.origin("cluster.name")
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    Ok(authority)
}

/// Whether everything that is there can be kept or made anew; nothing is written.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn can_ensure(loaded: &Loaded) -> Result<(), Failure> {
    if !directory(loaded).join(places::AUTHORITY).exists() {
        return Ok(());
    }
    let (authority, now) = (authority(loaded)?, clock::now());
    members(loaded)
        .iter()
        .try_for_each(|(member, path)| standing(&authority, member, path, now).map(|_| ()))
}

/// Makes everything that is absent or near its end; nothing else is touched.
///
/// # Errors
/// As [`authority`], and [`Exit::Internal`] when a file cannot be written.
pub(crate) fn ensure(loaded: &Loaded) -> Result<Vec<(PathBuf, State)>, Failure> {
    let now = clock::now();
    let directory = directory(loaded);
    private_folder(&directory)?;
    let path = directory.join(places::AUTHORITY);
    let (authority, state) = if path.exists() {
        (authority(loaded)?, State::Kept)
    } else {
        let name = &loaded.config.cluster.name;
        let made = Authority::create(&path, name, now).or_exit(Exit::Internal)?;
        (made, State::Made)
    };
    let mut done = vec![(path, state)];
    for (member, path) in members(loaded) {
        let state = member_file(loaded, &authority, &member, &path, now)?;
        done.push((path, state));
    }
    Ok(done)
}

fn member_file(
    loaded: &Loaded,
    authority: &Authority,
    member: &Identity,
    path: &Path,
    now: Micros,
) -> Result<State, Failure> {
    let state = standing(authority, member, path, now)?;
    if state != State::Kept {
        issue(loaded, authority, member, path)?;
    }
    Ok(state)
}

/// What is to be done with the file of a member.
fn standing(
    authority: &Authority,
    member: &Identity,
    path: &Path,
    now: Micros,
) -> Result<State, Failure> {
    Ok(match Credential::load(path) {
        // One of an authority that was replaced is of no use.
        Ok(held) if fingerprint(held.authority()) != authority.fingerprint() => State::Renewed,
        Ok(held) if held.identity == *member && now < held.renewal() => State::Kept,
        Ok(_) => State::Renewed,
        Err(_) if !path.exists() => State::Made,
        Err(error) => return Err(error).or_exit(Exit::BadInput),
    })
}

/// Makes a certificate and writes it to its file.
///
/// # Errors
/// [`Exit::Internal`] when it cannot be made or written.
pub(crate) fn issue(
    loaded: &Loaded,
    authority: &Authority,
    member: &Identity,
    path: &Path,
) -> Result<Credential, Failure> {
    let life = loaded.config.security.certificate_life();
    let made = authority
        .issue(member, life, clock::now())
        .or_exit(Exit::Internal)?;
    made.save(path).or_exit(Exit::Internal)?;
    Ok(made)
}

/// What the command line on this machine proves itself with; where the authority is here too, one near its end is made
/// anew.
///
/// # Errors
/// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when it is unreadable.
pub(crate) fn operator(loaded: &Loaded) -> Result<Credential, Failure> {
    let path = directory(loaded).join(places::OPERATOR);
    if !path.exists() {
        let message = format!(
            "{} is absent: nobody here may speak with the cluster",
            path.display()
        );
        return Err(Failure::new(Exit::NotFound, message).hint(
            "a cluster on this machine: spotmux up, or spotmux ca init; elsewhere: ask its operator for spotmux ca issue NAME --operator",
        ));
    }
    let held = Credential::load(&path).or_exit(Exit::BadInput)?;
    let now = clock::now();
    if now < held.renewal() {
        return Ok(held);
    }
    match authority(loaded) {
        Ok(authority) => issue(loaded, &authority, &held.identity, &path),
        Err(_) if now < held.life.end => Ok(held),
        Err(_) => Err(expired(&held, &path, now)),
    }
}

/// Who holds an expired certificate can only join anew.
fn expired(held: &Credential, path: &Path, now: Micros) -> Failure {
    let name = &held.identity.name;
    let message = format!(
        "{} expired {} ago: the cluster believes it no longer",
        path.display(),
        shown::span(now.since(held.life.end))
    );
    Failure::new(Exit::Forbidden, message).hint(format!(
        "have a token made (spotmux ca token {name} --operator), then: \
         spotmux join --coordinator HOST:PORT --token - --role operator --name {name}"
    ))
}

/// Makes a folder that only its owner may look into.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses.
pub(crate) fn private_folder(path: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make {}", path.display()))
        .or_exit(Exit::Internal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn what_is_there_is_kept_and_what_is_near_its_end_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        fs::write(&path, "[[node]]\nname = 'n1'\n").unwrap();
        let loaded = shared::config::load::load(&path, [], &[]).unwrap();
        let states = |loaded: &Loaded| -> Vec<State> {
            ensure(loaded)
                .unwrap()
                .into_iter()
                .map(|(_, state)| state)
                .collect()
        };
        assert_eq!(states(&loaded), [State::Made; 4]);
        assert_eq!(states(&loaded), [State::Kept; 4]);
        // One that had its end long ago.
        let authority = authority(&loaded).unwrap();
        let (member, path) = members(&loaded).remove(1);
        let old = authority
            .issue(&member, Micros(1_000_000), Micros(1_000_000_000))
            .unwrap();
        old.save(&path).unwrap();
        assert_eq!(operator(&loaded).unwrap().identity, member);
        assert!(Credential::load(&path).unwrap().life.end > clock::now());
        // Without an authority it cannot be made anew here, and is not shown to anybody.
        old.save(&path).unwrap();
        let hidden = directory(&loaded).join("elsewhere");
        fs::rename(directory(&loaded).join(places::AUTHORITY), &hidden).unwrap();
        let failure = operator(&loaded).unwrap_err();
        assert_eq!(failure.exit, Exit::Forbidden);
        assert!(failure.hints[0].contains("ca token operator"));
        fs::rename(&hidden, directory(&loaded).join(places::AUTHORITY)).unwrap();
        operator(&loaded).unwrap();
        // Another authority: what the old one signed is of no use.
        fs::remove_file(directory(&loaded).join(places::AUTHORITY)).unwrap();
        let renewed = [State::Made, State::Renewed, State::Renewed, State::Renewed];
        assert_eq!(states(&loaded), renewed);
    }

    #[test]
    fn the_authority_of_another_cluster_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        fs::write(&path, "").unwrap();
        ensure(&shared::config::load::load(&path, [], &[]).unwrap()).unwrap();
        let other = ["cluster.name=other".to_owned()];
        let loaded = shared::config::load::load(&path, [], &other).unwrap();
        let failure = ensure(&loaded).unwrap_err();
        assert_eq!(failure.exit, Exit::BadInput);
        assert!(
            failure.message().contains("authority of cluster local"),
            "{}",
            failure.message()
        );
    }
}
