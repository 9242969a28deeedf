//! A job that ended is sampled with what the store has of it.

use super::run::{Cluster, Sandbox};

const PROMPT: &str = "say sample 3";

#[test]
fn a_sample_after_the_end_is_that_of_the_adapter_fetched() {
    let sandbox = Sandbox::new(3);
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    cluster.submit();
    cluster.adapters();
    for job in ["lora", "dora", "ia3"] {
        let arguments = ["sample", PROMPT, "--job", job, "--max-tokens", "24"];
        // A cluster lays out anew what it lays out.
        let sampled = cluster.until("a sample", |cluster| cluster.json(&arguments));
        let folder = format!("fetched/{job}");
        let arguments = [
            "generate",
            PROMPT,
            "--model",
            "model",
            "--adapter",
            &folder,
            "--max-tokens",
            "24",
        ];
        let wanted = cluster.json(&arguments).expect("it is generated");
        assert!(!sampled["text"].as_str().unwrap().is_empty(), "{sampled}");
        assert_eq!(sampled["text"], wanted["text"], "{job}");
    }
    // It is taken off again: another job is trained behind it.
    let status = cluster.json(&["status"]).unwrap();
    assert_eq!(
        status["plan"]["replicas"][0]["jobs"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let unknown = sandbox.spotmux(&["sample", PROMPT, "--job", "nobody"]);
    let told = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        !unknown.status.success() && told.contains("nobody"),
        "{told}"
    );
}
