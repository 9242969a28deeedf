//! "Did you mean": the valid name nearest to a wrong one, for every place where a user writes names.

/// Longest word compared; nobody mistypes a name of this length.
const LONGEST: usize = 64;
/// Letters of a word that must agree before it counts as the start of a longer name.
const START: usize = 3;

/// The valid name that was probably meant: some letters wrong, missing, doubled or swapped, another case, `-` for `_`, or
/// only its start.
///
/// ```
/// use shared::suggest::nearest;
///
/// let valid = ["learning_rate", "weight_decay", "warmup_steps"];
/// assert_eq!(nearest("lerning-rate", valid), Some("learning_rate"));
/// assert_eq!(nearest("warmup", valid), Some("warmup_steps"));
/// assert_eq!(nearest("colour", valid), None);
/// ```
#[must_use]
pub fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > LONGEST {
        return None;
    }
    let word = plain(word);
    let judged = valid.into_iter().filter_map(|name| {
        let wanted = plain(name);
        let distance = strsim::osa_distance(&word, &wanted);
        let longer = word.chars().count().max(wanted.chars().count());
        let started = word.len() >= START && wanted.starts_with(&word);
        (distance <= (longer / 3).max(1) && distance < longer || started)
            .then_some((distance, name))
    });
    judged
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn plain(text: &str) -> String {
    text.to_lowercase().replace('-', "_")
}

/// `did you mean `name`?` with a `; ` before it, or nothing.
#[must_use]
pub fn clause<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, valid)
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

/// A name refused by a derived reader, as its message has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// Whether it is a key, and not a value.
    pub key: bool,
    /// What was written.
    pub word: &'a str,
    /// What could have been.
    pub valid: Vec<&'a str>,
}

/// Finds the refused name in a message of serde's derived readers, `` unknown field `x`, expected one of `a`, `b` ``.
#[must_use]
pub fn unknown(message: &str) -> Option<Unknown<'_>> {
    let starts = [("unknown field `", true), ("unknown variant `", false)];
    let (at, length, key) = starts
        .into_iter()
        .find_map(|(start, key)| Some((message.find(start)?, start.len(), key)))?;
    let (word, rest) = message[at + length..].split_once("`, expected ")?;
    let line = rest.lines().next().unwrap_or_default();
    let valid = line.split('`').skip(1).step_by(2).collect();
    Some(Unknown { key, word, valid })
}

/// Adds the nearest valid name to a message that refuses one; other messages stay as they are.
#[must_use]
pub fn told(message: &str) -> String {
    let message = message.trim_end();
    let clause = unknown(message)
        .map(|unknown| clause(unknown.word, unknown.valid))
        .unwrap_or_default();
    format!("{message}{clause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_near() {
        let valid = [
            "lora",
            "ia3",
            "bottleneck",
            "prefix",
            "prompt",
            "bitfit",
            "diff",
        ];
        for (word, meant) in [
            ("loar", Some("lora")),
            ("LoRA", Some("lora")),
            ("prefx", Some("prefix")),
            ("bottle", Some("bottleneck")),
            ("magic", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, valid), meant, "{word}");
        }
        assert_eq!(nearest(&"lora".repeat(100), valid), None);
    }

    #[test]
    fn messages_of_derived_readers_are_understood() {
        let message = "unknown field `rnak`, expected one of `rank`, `alpha`";
        let found = unknown(message);
        let expected = Unknown {
            key: true,
            word: "rnak",
            valid: vec!["rank", "alpha"],
        };
        assert_eq!(found, Some(expected));
        assert_eq!(told(message), format!("{message}; did you mean `rank`?"));
        let two = "unknown variant `adam`, expected `adamw` or `sgd`\n";
        assert!(told(two).ends_with("`sgd`; did you mean `adamw`?"));
        assert_eq!(told("missing field `rank`"), "missing field `rank`");
        assert_eq!(unknown("unknown field `a"), None);
    }
}
