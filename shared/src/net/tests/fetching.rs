//! Files of the backbone from member to member: whole, in tries, or refused.

use std::fs;

use super::*;
use crate::net::client::ClientError;
use crate::net::resume::is_there;
use crate::wire::request::RefusalCode;

/// What a joiner fetches: three pieces and a bit.
fn body() -> Vec<u8> {
    (0..800_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

struct Case {
    cluster: Cluster,
    client: Client,
    file: FileRef,
    folder: std::path::PathBuf,
}

impl Case {
    async fn new() -> Self {
        let cluster = Cluster::start("c");
        let endpoint = cluster.member(Role::GpuActor, "n1");
        let client = Client::connect(&endpoint, cluster.address).await.unwrap();
        let folder = cluster.path().join("fetched");
        fs::create_dir(&folder).unwrap();
        let case = Self {
            cluster,
            client,
            file: file_of("model.safetensors", &body()),
            folder,
        };
        case.shelve(&body(), 1, u64::MAX);
        case
    }

    /// What is handed out from now on.
    fn shelve(&self, body: &[u8], at_once: usize, rate: u64) {
        let path = self.cluster.path().join("shelved");
        fs::write(&path, body).unwrap();
        let files = [("model.safetensors".to_owned(), path)];
        let shelf = Shelf::new(files, at_once, Bytes(rate));
        *self.cluster.host.shelf.lock().unwrap() = Arc::new(shelf);
    }

    async fn fetch(&self) -> Result<(), ClientError> {
        self.client
            .fetch_backbone_file(&self.file, &self.folder)
            .await
    }

    fn partial(&self) -> std::path::PathBuf {
        self.folder.join(".model.safetensors.partial")
    }

    fn asked_from(&self) -> Vec<u64> {
        self.cluster.host.from.lock().unwrap().clone()
    }

    #[track_caller]
    fn is_whole(&self) {
        let got = fs::read(self.folder.join("model.safetensors")).unwrap();
        assert!(got == body(), "other bytes");
        assert!(!self.partial().exists());
    }
}

#[tokio::test]
async fn rs_1_a_file_comes_whole_and_once() {
    let case = Case::new().await;
    let shelf = Arc::clone(&case.cluster.host.shelf.lock().unwrap());
    assert_eq!(
        shelf.references().unwrap(),
        std::slice::from_ref(&case.file)
    );
    case.fetch().await.unwrap();
    case.is_whole();
    case.fetch().await.unwrap();
    assert_eq!(case.asked_from(), [0], "what is there is not asked for");
}

#[tokio::test]
async fn rs_1_a_file_of_that_name_with_other_bytes_is_fetched_anew() {
    let case = Case::new().await;
    // The one who hands out may be at its rest still when the next is asked for.
    case.shelve(&body(), 8, u64::MAX);
    let place = case.folder.join("model.safetensors");
    let mut other = body();
    other[400_000] ^= 1;
    // Of its size with another byte, shorter, longer.
    for bad in [other, body()[1..].to_vec(), [body(), vec![0]].concat()] {
        fs::write(&place, &bad).unwrap();
        assert!(!is_there(&case.file, &case.folder).await.unwrap());
        case.fetch().await.unwrap();
        case.is_whole();
        assert!(is_there(&case.file, &case.folder).await.unwrap());
    }
    assert_eq!(case.asked_from(), [0, 0, 0]);
}

#[tokio::test]
async fn rs_2_what_was_cut_off_goes_on_where_it_was() {
    let case = Case::new().await;
    // After the first piece it rests for hours: the asker gives up.
    case.shelve(&body(), 1, 10);
    let waited = async {
        while fs::metadata(case.partial()).map_or(0, |of| of.len()) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        fetched = case.fetch() => panic!("it rests: {fetched:?}"),
        () = waited => {}
    }
    let left = fs::metadata(case.partial()).unwrap().len();
    assert!(left > 0 && left < body().len() as u64, "{left}");
    case.shelve(&body(), 1, u64::MAX);
    case.fetch().await.unwrap();
    case.is_whole();
    let asked = case.asked_from();
    assert!(asked.len() == 2 && asked[1] > 0, "{asked:?}");
}

#[tokio::test]
async fn a_peer_of_whom_nothing_comes_is_not_waited_for() {
    let case = Case::new().await;
    // After the first piece it rests for hours.
    case.shelve(&body(), 1, 10);
    let told = case.fetch().await.unwrap_err().to_string();
    assert!(told.contains("nothing of model.safetensors came"), "{told}");
    assert!(case.partial().exists(), "what came stays");
}

#[tokio::test]
async fn bytes_that_are_not_what_was_said_are_thrown_away() {
    let case = Case::new().await;
    // The one who hands out may be at its rest still when the next is asked for.
    case.shelve(&body(), 8, u64::MAX);
    for bad in [Vec::new(), b"not how it begins".to_vec(), vec![0; 900_000]] {
        // What an earlier try left, or somebody else: too little, wrong, too much.
        fs::write(case.partial(), &bad).unwrap();
        let fetched = case.fetch().await;
        if bad.len() == 17 {
            let told = fetched.unwrap_err().to_string();
            assert!(told.contains("its sha256 is"), "{told}");
            assert!(!case.partial().exists());
            case.fetch().await.unwrap();
        } else {
            fetched.unwrap();
        }
        case.is_whole();
        fs::remove_file(case.folder.join("model.safetensors")).unwrap();
    }
    // A peer whose file has a byte of another.
    let mut other = body();
    other[700_000] ^= 1;
    case.shelve(&other, 1, u64::MAX);
    let told = case.fetch().await.unwrap_err().to_string();
    assert!(told.contains("its sha256 is"), "{told}");
    assert_eq!(fs::read_dir(&case.folder).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_be_handed_out_is_refused_with_why() {
    let case = Case::new().await;
    let refused = async |word: &str, code: RefusalCode| match case.fetch().await {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.code, code);
            assert!(refusal.message.contains(word), "{}", refusal.message);
        }
        other => panic!("{other:?}"),
    };
    case.shelve(&body()[1..], 1, u64::MAX);
    refused("here it has 799999 bytes", RefusalCode::NotFound).await;
    case.shelve(&body(), 0, u64::MAX);
    refused("another node", RefusalCode::Busy).await;
    let shelf = Shelf::new([], 1, Bytes(1));
    *case.cluster.host.shelf.lock().unwrap() = Arc::new(shelf);
    refused("no such file", RefusalCode::NotFound).await;
    for path in ["../model", "/etc/passwd", ".hidden", "a/b", ""] {
        let file = FileRef {
            path: path.into(),
            ..case.file.clone()
        };
        let fetched = case.client.fetch_backbone_file(&file, &case.folder).await;
        assert!(matches!(fetched, Err(ClientError::File { .. })), "{path}");
    }
    // Who is no node may not ask.
    let operator = case.cluster.client().await;
    let asked = operator.fetch_backbone_file(&case.file, &case.folder).await;
    assert!(
        matches!(&asked, Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::Forbidden),
        "{asked:?}"
    );
}
