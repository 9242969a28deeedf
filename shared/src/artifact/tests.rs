#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn open(folder: &std::path::Path) -> BlockingStore {
    let store = Store::open(folder.to_str().unwrap(), &BTreeMap::new()).unwrap();
    BlockingStore::new(store).unwrap()
}

/// What holds of every store; it starts empty.
fn exercise(store: &BlockingStore) {
    let (a, b) = (key("jobs/j1/a.bin"), key("jobs/j10/b.bin"));
    assert!(matches!(store.get(&a), Err(ArtifactError::NotFound { .. })));
    assert!(!store.exists(&a).unwrap());
    let stamp = store.create(&a, "one").unwrap();
    assert_eq!(stamp, Stamp::of(b"one"));
    assert!(matches!(
        store.create(&a, "two"),
        Err(ArtifactError::Exists { .. })
    ));
    assert_eq!(&store.get_checked(&a, &stamp).unwrap()[..], b"one");
    store.put(&a, "three").unwrap();
    let damaged = store.get_checked(&a, &stamp).unwrap_err();
    assert!(
        matches!(damaged, ArtifactError::Damaged { .. }),
        "{damaged}"
    );
    assert!(damaged.to_string().contains("jobs/j1/a.bin"), "{damaged}");
    store.put(&b, vec![7; 100_000]).unwrap();
    assert_eq!(store.size(&b).unwrap(), Some(units::Bytes(100_000)));
    let all = store.list(None).unwrap();
    assert_eq!(
        all,
        [
            (a.clone(), units::Bytes(5)),
            (b.clone(), units::Bytes(100_000))
        ]
    );
    // A prefix ends where a part ends: j1 is not j10.
    let below = store.list(Some(&key("jobs/j1"))).unwrap();
    assert_eq!(below.len(), 1, "{below:?}");
    store.delete(&a).unwrap();
    store.delete(&a).unwrap();
    assert!(!store.exists(&a).unwrap());
    store.delete(&b).unwrap();
    assert!(store.list(None).unwrap().is_empty());
}

#[test]
fn a_folder_keeps_what_it_is_given() {
    let root = tempfile::tempdir().unwrap();
    exercise(&open(&root.path().join("deep/store")));
}

#[test]
fn half_a_write_shows_nowhere_and_cut_bytes_are_found() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let state = key("jobs/j1/state");
    let stamp = store.put(&state, vec![1; 4096]).unwrap();
    // What a writer that died left beside.
    std::fs::write(root.path().join("jobs/j1/state#1"), [1; 100]).unwrap();
    assert_eq!(store.list(None).unwrap().len(), 1);
    let file = std::fs::File::options()
        .write(true)
        .open(root.path().join("jobs/j1/state"))
        .unwrap();
    file.set_len(4000).unwrap();
    let cut = store.get_checked(&state, &stamp).unwrap_err();
    assert!(matches!(cut, ArtifactError::Damaged { .. }), "{cut}");
    assert!(store.get(&state).is_ok(), "without a stamp nobody can know");
}

#[test]
fn of_many_who_create_one_key_one_does() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path();
    let created: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number: u8| {
                scope.spawn(move || {
                    usize::from(open(path).create(&key("lease"), vec![number; 9]).is_ok())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(created, 1);
    assert_eq!(open(path).get(&key("lease")).unwrap().len(), 9);
}

#[test]
fn an_object_over_the_limit_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path().to_str().unwrap(), &BTreeMap::new()).unwrap();
    let store = BlockingStore::new(store.with_most(units::Bytes(10))).unwrap();
    store.put(&key("a"), "01234567890").unwrap();
    let error = store.get(&key("a")).unwrap_err();
    assert!(error.to_string().contains("which is fixed"), "{error}");
}

/// Against a service that speaks S3: `SPOTMUX_TEST_S3=http://127.0.0.1:5000`, with a bucket `spotmux-test`.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that looks for a service")]
fn a_bucket_keeps_what_it_is_given() {
    let Ok(endpoint) = std::env::var("SPOTMUX_TEST_S3") else {
        eprintln!("SKIPPED: SPOTMUX_TEST_S3 names no service that speaks S3");
        return;
    };
    let options = [
        ("endpoint", endpoint.as_str()),
        ("region", "us-east-1"),
        ("access_key_id", "test"),
        ("secret_access_key", "test"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let address = format!("s3://spotmux-test/run-{}", std::process::id());
    let store = Store::open(&address, &BTreeMap::from(options)).unwrap();
    exercise(&BlockingStore::new(store).unwrap());
}

#[test]
fn an_object_is_read_piece_by_piece_and_damage_is_found_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path().to_str().unwrap(), &BTreeMap::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let a = key("a");
        let bytes: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
        let stamp = store.put(&a, bytes.clone()).await.unwrap();
        let (mut pieces, mut read, mut longest) =
            (store.pieces(&a, &stamp).await.unwrap(), vec![], 0);
        while let Some(piece) = pieces.next().await.unwrap() {
            longest = longest.max(piece.len());
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, bytes);
        assert!(longest < bytes.len(), "it comes at once");
        store.put(&a, &b"other"[..]).await.unwrap();
        let mut pieces = store.pieces(&a, &stamp).await.unwrap();
        let damaged = loop {
            match pieces.next().await {
                Ok(piece) => assert!(piece.is_some(), "it is not what it should be"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(damaged, ArtifactError::Damaged { .. }),
            "{damaged}"
        );
    });
}
