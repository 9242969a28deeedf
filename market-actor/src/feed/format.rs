//! Which format a text is in: said by name, or told from its content.

use super::fault::FeedError;
use super::table::{Row, rows};
use super::{Observed, bamboo, gpu_market, instant, price_history, price_table, record, skypilot};

/// A format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `{"metadata": {"gap_seconds": ..}, "data": [..]}`.
    SkyPilot,
    /// `ms,add|remove,node`.
    BambooEvents,
    /// `YYYY-MM-DD, HH:MM:SS, size`.
    BambooClock,
    /// `time,size`, two rows a change.
    BambooSteps,
    /// `ms,size`.
    Parcae,
    /// `timestamp,availability_zone,instance_type,usd_per_hour`.
    PriceTable,
    /// JSON of DescribeSpotPriceHistory.
    PriceHistoryJson,
    /// XML of DescribeSpotPriceHistory.
    PriceHistoryXml,
    /// Snapshots of a marketplace.
    GpuMarket,
    /// Our own recordings.
    Record,
}

/// All formats, by name.
pub const FORMATS: [(&str, Format); 10] = [
    ("skypilot", Format::SkyPilot),
    ("bamboo-events", Format::BambooEvents),
    ("bamboo-clock", Format::BambooClock),
    ("bamboo-steps", Format::BambooSteps),
    ("parcae", Format::Parcae),
    ("price-table", Format::PriceTable),
    ("price-history-json", Format::PriceHistoryJson),
    ("price-history-xml", Format::PriceHistoryXml),
    ("gpu-market", Format::GpuMarket),
    ("spotmux", Format::Record),
];

/// The names of all formats, for people.
#[must_use]
pub fn names() -> String {
    FORMATS.map(|(name, _)| name).join(", ")
}

impl Format {
    /// The format of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let found = FORMATS.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = FORMATS.iter().find(|(_, format)| *format == self);
        found.map_or("", |(name, _)| name)
    }

    /// The format that the content looks like.
    #[must_use]
    pub fn guess(text: &str) -> Option<Self> {
        let trimmed = text.trim_start_matches('\u{feff}').trim_start();
        if trimmed.starts_with('<') {
            let known = trimmed.contains("DescribeSpotPriceHistoryResponse");
            return known.then_some(Self::PriceHistoryXml);
        }
        if trimmed.starts_with('{') {
            let keys = [
                ("\"spotmux_market\"", Self::Record),
                ("\"gap_seconds\"", Self::SkyPilot),
                ("\"SpotPriceHistory\"", Self::PriceHistoryJson),
            ];
            let found = keys.into_iter().find(|(key, _)| trimmed.contains(key));
            return found.map(|(_, format)| format);
        }
        let first = rows(text).next()?;
        let cells = first.texts();
        match cells.as_slice() {
            [_, "add" | "remove", _] => Some(Self::BambooEvents),
            [date, clock, _] if instant::parse(&format!("{date}T{clock}")).is_ok() => {
                Some(Self::BambooClock)
            }
            _ if cells.join(",") == price_table::HEADER => Some(Self::PriceTable),
            _ if cells.join(",") == gpu_market::HEADER => Some(Self::GpuMarket),
            [time, size] if time.parse::<f64>().is_ok() && size.parse::<u32>().is_ok() => {
                Some(if in_steps(text) {
                    Self::BambooSteps
                } else {
                    Self::Parcae
                })
            }
            _ => None,
        }
    }

    /// Reads a text in this format; one [`Observed`] for each pool in it.
    ///
    /// # Errors
    /// Those of the format's reader.
    pub fn read(self, source_name: &str, text: &str) -> Result<Vec<Observed>, FeedError> {
        let one = |observed: Result<Observed, FeedError>| observed.map(|only| vec![only]);
        match self {
            Self::SkyPilot => one(skypilot::parse(source_name, text)),
            Self::BambooEvents => one(bamboo::events(source_name, text)),
            Self::BambooClock => one(bamboo::clock(source_name, text)),
            Self::BambooSteps => one(bamboo::steps(source_name, text)),
            Self::Parcae => one(bamboo::milliseconds(source_name, text)),
            Self::PriceTable => price_table::parse(source_name, text),
            Self::PriceHistoryJson => price_history::json(source_name, text),
            Self::PriceHistoryXml => price_history::xml(source_name, text),
            Self::GpuMarket => one(gpu_market::parse(source_name, text)),
            Self::Record => {
                let recording = record::parse(source_name, text)?;
                let pools = recording.observed();
                if pools.is_empty() {
                    return Err(FeedError::Empty {
                        source_name: source_name.to_owned(),
                    });
                }
                Ok(pools)
            }
        }
    }
}

/// Reads a text in the given format, or in the one that it looks like.
///
/// # Errors
/// Those of the format's reader; [`FeedError::Unknown`] when it looks like none.
pub fn read(
    source_name: &str,
    text: &str,
    format: Option<Format>,
) -> Result<Vec<Observed>, FeedError> {
    let Some(format) = format.or_else(|| Format::guess(text)) else {
        return Err(FeedError::Unknown {
            source_name: source_name.to_owned(),
            known: names(),
        });
    };
    format.read(source_name, text)
}

/// Whether every row repeats the time or the size of the one before, as steps with two rows a change do.
fn in_steps(text: &str) -> bool {
    let all: Vec<Row<'_>> = rows(text).collect();
    let repeats = |pair: &[Row<'_>]| {
        let (before, after) = (pair[0].texts(), pair[1].texts());
        before.first() == after.first() || before.get(1) == after.get(1)
    };
    all.windows(2).all(repeats)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_tells_the_format() {
        let texts = [
            (
                "{\"metadata\": {\"gap_seconds\": 3}, \"data\": [1]}",
                Format::SkyPilot,
            ),
            ("0,add,node1\n", Format::BambooEvents),
            ("2021-12-10, 13:07:45, 80\n", Format::BambooClock),
            ("0,0\n60,0\n60,4\n75,4\n", Format::BambooSteps),
            ("0,1\n0,2\n40,3\n", Format::Parcae),
            ("{\"SpotPriceHistory\": []}", Format::PriceHistoryJson),
            (
                "<?xml?><DescribeSpotPriceHistoryResponse/>",
                Format::PriceHistoryXml,
            ),
            ("{\"spotmux_market\":1}\n", Format::Record),
        ];
        for (text, format) in texts {
            assert_eq!(Format::guess(text), Some(format), "{text}");
        }
        assert_eq!(Format::guess(price_table::HEADER), Some(Format::PriceTable));
        assert_eq!(Format::guess(gpu_market::HEADER), Some(Format::GpuMarket));
        for text in ["", "a,b,c,d\n", "{}", "<html>", "1,2,3\n"] {
            assert_eq!(Format::guess(text), None, "{text}");
        }
    }

    #[test]
    fn names_go_both_ways() {
        for (name, format) in FORMATS {
            assert_eq!(Format::of_name(name), Some(format));
            assert_eq!(format.name(), name);
        }
        assert_eq!(Format::of_name("csv"), None);
    }

    #[test]
    fn an_unknown_text_is_refused_with_the_names() {
        let message = read("x", "a;b\n", None).unwrap_err().to_string();
        assert!(message.contains("--format") && message.contains("bamboo-events"));
        assert!(matches!(
            read("x", "{\"spotmux_market\":1}\n", None),
            Err(FeedError::Empty { .. })
        ));
    }

    proptest! {
        /// Whatever stands in a file: a reader answers or says what is wrong.
        #[test]
        fn no_text_makes_a_reader_panic(
            text in "\\PC{0,60}",
            rows in prop::collection::vec("[0-9:.,\\-T Z{}\\[\\]\"a-z_<>/\u{e9}]{0,30}", 0..6),
            which in 0usize..10,
            begin in prop::sample::select(vec![
                "", "{\"spotmux_market\":1}\n", "{\"metadata\":{\"gap_seconds\":1},\"data\":[",
                "{\"SpotPriceHistory\":[{", "<a><item>", price_table::HEADER, gpu_market::HEADER, "0,add,n\n",
            ]),
        ) {
            let (_, format) = FORMATS[which];
            let made = format!("{begin}{}", rows.join("\n"));
            for text in [&text, &made] {
                let named = format.read("t", text);
                let guessed = read("t", text, None);
                for pools in [named, guessed].into_iter().flatten() {
                    prop_assert!(!pools.is_empty());
                }
            }
        }
    }
}
