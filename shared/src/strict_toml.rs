//! TOML read into a type, its faults told as users need them: path of the key, line and column, what would be valid, and
//! the nearest valid name.

use serde::de::DeserializeOwned;

use crate::suggest;

/// Characters of a line of a message: the library shows whole lines and whole values.
const MOST: usize = 240;

/// Reads a text.
///
/// # Errors
/// A message of several lines: path of the key, place in the text, what is wrong.
///
/// ```
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Engine {
///     #[allow(dead_code)]
///     threads: usize,
/// }
/// #[derive(Debug, serde::Deserialize)]
/// struct File {
///     #[allow(dead_code)]
///     engine: Engine,
/// }
/// let told = shared::strict_toml::read::<File>("engine = { treads = 2 }").unwrap_err();
/// assert!(told.starts_with("engine.treads: "), "{told}");
/// assert!(told.ends_with("did you mean `threads`?"), "{told}");
/// ```
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let reader = toml::Deserializer::parse(text).map_err(|error| bounded(&error.to_string()))?;
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let path = error.path().to_string();
        let message = suggest::told(&error.inner().to_string());
        bounded(&match full(&path, error.inner().message()) {
            Some(path) => format!("{path}: {message}"),
            None => message,
        })
    })
}

/// A message without the ends of lines that are too long.
fn bounded(message: &str) -> String {
    let cut = |line: &str| match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_owned(),
    };
    let lines: Vec<String> = message.split('\n').map(cut).collect();
    lines.join("\n")
}

/// What each table of a list comes to when it is read by itself: its first fault is told by its path, without a place in the text.
/// Nothing where the text is no TOML, or has no such list.
#[must_use]
pub fn each<T: DeserializeOwned>(text: &str, list: &str) -> Vec<Result<T, String>> {
    let Ok(table) = text.parse::<toml::Table>() else {
        return Vec::new();
    };
    let Some(toml::Value::Array(all)) = table.get(list) else {
        return Vec::new();
    };
    let read = |(at, one): (usize, &toml::Value)| {
        serde_path_to_error::deserialize(one.clone()).map_err(|error| {
            let message = suggest::told(&error.inner().to_string());
            bounded(
                &match full(&error.path().to_string(), error.inner().message()) {
                    Some(path) => format!("{list}[{at}].{path}: {message}"),
                    None => format!("{list}[{at}]: {message}"),
                },
            )
        })
    };
    all.iter().enumerate().map(read).collect()
}

/// The path down to the key that is meant: readers of tagged tables lose its last part, and the message has it.
fn full(path: &str, message: &str) -> Option<String> {
    let known = if path == "." { "" } else { path };
    let last = match suggest::unknown(message) {
        Some(unknown) if unknown.key => Some(unknown.word),
        Some(_) => None,
        None => in_front(message),
    };
    let path = match last {
        None => known.to_owned(),
        Some(last) if known == last || known.ends_with(&format!(".{last}")) => known.to_owned(),
        Some(last) if known.is_empty() => last.to_owned(),
        Some(last) => format!("{known}.{last}"),
    };
    (!path.is_empty()).then_some(path)
}

/// The key that a message begins with, as in `targets[1]: unknown target`.
fn in_front(message: &str) -> Option<&str> {
    let (key, _) = message.split_once(": ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_[].".contains(c);
    (key.ends_with(']') && key.chars().all(plain)).then_some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::job::JobFile;

    fn told(job: &str) -> String {
        let text = format!(
            "model = 'm'\n[[job]]\nname = 'a'\nadapter = {{ method = 'ia3' }}\ndata = {{ train = 'a' }}\n\
             [[job]]\nname = 'b'\ndata = {{ train = 'b' }}\n{job}\n"
        );
        JobFile::parse(&text).unwrap_err().to_string()
    }

    #[test]
    fn long_lines_are_cut() {
        let long = "x".repeat(10_000);
        for job in [
            format!("adapter = {{ method = '{long}' }}"),
            format!("adapter = {{ method = 'ia3' }}\n{long} = 1"),
            format!("adapter = {{ method = 'ia3' }}\n{long} = ="),
        ] {
            let said = told(&job);
            assert!(said.contains("..."), "{said}");
            assert!(said.len() < 1600, "{} {said}", said.len());
        }
    }

    #[test]
    fn faults_have_the_path_of_their_key_and_the_nearest_name() {
        let lora = "adapter = { method = 'lora', rank = 2 }\n";
        let with = |more: &str| format!("{lora}{more}");
        let cases = [
            (
                "adapter = { method = 'loar', rank = 2 }".to_owned(),
                "job[1].adapter.method: ",
                "lora",
            ),
            (
                "adapter = { method = 'lora', rnak = 2 }".to_owned(),
                "job[1].adapter.rnak: ",
                "rank",
            ),
            (
                "adapter = { method = 'lora', rank = 2, targets = ['q_proj', 'v_porj'] }"
                    .to_owned(),
                "job[1].adapter.targets[1]: ",
                "v_proj",
            ),
            (
                "adapter = { method = 'ia3', feedforward = ['down_prj'] }".to_owned(),
                "job[1].adapter.feedforward[0]: ",
                "down_proj",
            ),
            (
                with("optimizer = { lerning_rate = 1 }"),
                "job[1].optimizer.lerning_rate: ",
                "learning_rate",
            ),
            (
                with("optimizer = { kind = 'adam' }"),
                "job[1].optimizer.kind: ",
                "adamw",
            ),
            (
                with("schedule = { kind = 'cosin' }"),
                "job[1].schedule.kind: ",
                "cosine",
            ),
            (
                with("chekpoint = { keep_last = 1 }"),
                "job[1].chekpoint: ",
                "checkpoint",
            ),
            (
                with("[engine]\nbackbone = 'bf_16'"),
                "engine.backbone: ",
                "bf16",
            ),
        ];
        for (job, path, meant) in cases {
            let told = told(&job);
            assert!(
                told.starts_with(path),
                "{path} is not at the start of {told}"
            );
            assert!(told.contains("line "), "{told}");
            let clause = format!("did you mean `{meant}`?");
            assert!(told.ends_with(&clause), "{told}");
        }
        let told = told("adapter = { method = 'lora', rank = 'x' }");
        assert!(told.starts_with("job[1].adapter"), "{told}");
    }
}
