//! Whether the store of artifacts answers and does what states rely on: what was written is read back, and what is there
//! already is not created again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::artifact::{ArtifactError, Key, Store};
use shared::config::load::Loaded;
use tokio::runtime::Builder;

use super::Check;
use crate::clock;
use crate::settings::Settings;

const WHAT: &str = "store";
/// A store may take so long for all of it.
const PATIENCE: Duration = Duration::from_secs(15);

/// The folder that the store is; none when it is a bucket.
pub(super) fn folder(loaded: &Loaded) -> Option<PathBuf> {
    let url = &loaded.config.store.url;
    match url.split_once("://") {
        Some(("file", path)) => Some(loaded.path_of(path)),
        Some(_) => None,
        None => Some(loaded.path_of(url)),
    }
}

/// The nearest folder that is there: what is not there yet is made by the cluster.
pub(super) fn nearest(place: &Path) -> PathBuf {
    let there = place.ancestors().find(|path| path.is_dir());
    there.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Tries it.
pub(super) fn check(loaded: &Loaded, settings: &Settings) -> Check {
    let url = &loaded.config.store.url;
    let folder = folder(loaded);
    // A folder that is not there yet is made by the cluster: the nearest one must allow that.
    let place = match &folder {
        Some(folder) if folder.is_dir() => folder.clone(),
        Some(folder) => nearest(folder),
        None => PathBuf::from(url),
    };
    let shown = place.display().to_string();
    match tried(&shown, settings) {
        Ok(()) => Check::ok(WHAT, format!("{shown} is written, read, and creates once")),
        Err(error) => {
            let origin = loaded.origin("store.url");
            let remedy = match folder {
                Some(_) => format!("change store.url ({origin}), or the rights of {shown}"),
                None => format!(
                    "look at the keys, region and endpoint of the environment (AWS_ACCESS_KEY_ID, \
                     AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL) and at store.url ({origin})"
                ),
            };
            Check::fail(WHAT, format!("{shown}: {error}"), remedy)
        }
    }
}

fn tried(address: &str, settings: &Settings) -> Result<(), String> {
    let none = BTreeMap::new();
    let options = match address.starts_with("s3://") {
        true => &settings.store_options,
        false => &none,
    };
    let store = Store::open(address, options).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the system gives no runtime: {error}"))?;
    let outcome = runtime.block_on(async {
        let probed = tokio::time::timeout(PATIENCE, probe(&store)).await;
        probed.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    });
    // What still waits for a service that does not answer is left behind.
    runtime.shutdown_background();
    outcome
}

async fn probe(store: &Store) -> Result<(), String> {
    let told = |error: ArtifactError| error.to_string();
    let name = format!("doctor-{}-{}", std::process::id(), clock::now().0);
    let key = Key::new(name).map_err(|error| error.to_string())?;
    store.create(&key, &b"probe"[..]).await.map_err(told)?;
    let outcome = match store.get(&key).await {
        Ok(read) if read[..] == b"probe"[..] => match store.create(&key, &b"again"[..]).await {
            Err(ArtifactError::Exists { .. }) => Ok(()),
            Ok(_) => Err(
                "it creates what is there already (no conditional writes): two leaders could \
                 both take a state for theirs"
                    .to_owned(),
            ),
            Err(error) => Err(error.to_string()),
        },
        Ok(_) => Err("what was written is read back as something else".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let removed = store.delete(&key).await.map_err(told);
    outcome.and(removed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_store_is_tried_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        let try_it = |url: &str, options: &[(&str, &str)]| {
            fs::write(&file, format!("[store]\nurl = '{url}'\n")).unwrap();
            let loaded = shared::config::load::load(&file, [], &[]).unwrap();
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let settings = Settings {
                store_options: options.collect(),
                ..Settings::default()
            };
            check(&loaded, &settings)
        };
        let path = folder.path().display();
        assert_eq!(try_it("not/there/yet", &[]).verdict, Verdict::Ok);
        assert_eq!(try_it(&format!("{path}/deep"), &[]).verdict, Verdict::Ok);
        assert_eq!(try_it("/proc/nowhere", &[]).verdict, Verdict::Fail);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Nobody answers as a bucket.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let found = try_it(
            "s3://bucket/a",
            &[
                ("region", "r"),
                ("access_key_id", "k"),
                ("secret_access_key", "s"),
                ("endpoint", &endpoint),
            ],
        );
        assert_eq!(found.verdict, Verdict::Fail);
        assert!(found.remedy.contains("AWS_ENDPOINT_URL"), "{found:?}");
    }
}
