//! A job that ended is sampled with what the store has of it.

use super::run::{Cluster, Sandbox};

const PROMPT: &str = "say sample 3";

#[test]
fn a_sample_after_the_end_is_that_of_the_adapter_fetched() {
    let sandbox = Sandbox::new(3);
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    cluster.submit();
    cluster.adapters();
    // Greedily, and with draws: most likely of a tiny model is a row of spaces.
    let (mut said, mut texts) = (0, Vec::new());
    for (job, more) in [
        ("lora", &["--temperature", "0"][..]),
        ("dora", &["--temperature", "1"]),
        ("ia3", &["--temperature", "1"]),
        ("dora", &["--temperature", "1", "--system", "Be short."]),
        ("dora", &["--temperature", "1", "--raw"]),
    ] {
        let common = |first: [&'static str; 2]| {
            let rest = ["--max-tokens", "24", "--seed", "3"];
            [&first[..], &rest[..], more].concat()
        };
        let mut arguments = common(["sample", PROMPT]);
        arguments.extend(["--job", job]);
        let sampled = cluster.until("a sample", |cluster| cluster.json(&arguments));
        let folder = format!("fetched/{job}");
        let mut arguments = common(["generate", PROMPT]);
        arguments.extend(["--model", "model", "--adapter", &folder]);
        let wanted = cluster.json(&arguments).expect("it is generated");
        said += sampled["text"].as_str().unwrap().len();
        assert_eq!(sampled["text"], wanted["text"], "{job} {more:?}");
        texts.push(sampled["text"].clone());
    }
    // The system's turn and the lack of any matter.
    assert!(texts[1] != texts[3] && texts[1] != texts[4], "{texts:?}");
    assert!(said > 0, "three empty samples prove nothing");
    // A guest is no job.
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
