//! Rows of cells between commas. The sources quote nothing, so a comma is always a border.

use super::fault::RowFault;

/// A line that is not blank.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    /// Counted from 1.
    pub(super) line: usize,
    /// Trimmed, each with the column of its first character.
    cells: Vec<(usize, &'a str)>,
}

/// What is wrong, with its column.
pub(super) type Fault = (usize, RowFault);

/// The rows of a text; a byte order mark and blank lines do not count.
pub(super) fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate();
    let filled = lines.filter(|(_, line)| !line.trim().is_empty());
    filled.map(|(at, line)| Row {
        line: at + 1,
        cells: cells(line),
    })
}

fn cells(line: &str) -> Vec<(usize, &str)> {
    let mut column = 1;
    let mut cells = Vec::new();
    for cell in line.split(',') {
        let blank = cell.chars().take_while(|c| c.is_whitespace()).count();
        let shown = cell.trim();
        // A blank cell has no first character: it is pointed at where it begins.
        let at = if shown.is_empty() {
            column
        } else {
            column + blank
        };
        cells.push((at, shown));
        column += cell.chars().count() + 1;
    }
    cells
}

impl<'a> Row<'a> {
    /// Whether this is the first row of a format; else it says what belongs there.
    pub(super) fn is_header(&self, wanted: &'static str) -> Result<(), Fault> {
        let text = self.texts().join(",");
        if text == wanted {
            return Ok(());
        }
        Err((1, RowFault::Word { text, wanted }))
    }

    /// All cells, if there are `N`.
    pub(super) fn all<const N: usize>(&self) -> Result<[(usize, &'a str); N], Fault> {
        let fault = RowFault::Cells {
            found: self.cells.len(),
            wanted: N,
        };
        let column = self.cells.first().map_or(1, |cell| cell.0);
        <[_; N]>::try_from(self.cells.as_slice()).map_err(|_| (column, fault))
    }

    /// The texts of the cells.
    pub(super) fn texts(&self) -> Vec<&'a str> {
        self.cells.iter().map(|cell| cell.1).collect()
    }
}

/// A whole number from 0 to `most`.
pub(super) fn count(cell: (usize, &str), what: &'static str, most: u64) -> Result<u64, Fault> {
    let (column, text) = cell;
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.filter(|n| *n <= most).ok_or_else(|| {
        let fault = RowFault::Number {
            what,
            text: text.to_owned(),
            least: 0,
            most,
        };
        (column, fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_know_their_place() {
        let text = "\u{feff}a,b\r\n\n2021-12-10, 13:07:45, 80\n";
        let found: Vec<Row<'_>> = rows(text).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].texts(), ["a", "b"]);
        assert_eq!(found[1].line, 3);
        let [_, (column, clock), size] = found[1].all::<3>().unwrap();
        assert_eq!((column, clock), (13, "13:07:45"));
        assert_eq!(count(size, "a size", 100).unwrap(), 80);
        assert!(matches!(
            found[0].all::<3>(),
            Err((
                1,
                RowFault::Cells {
                    found: 2,
                    wanted: 3
                }
            ))
        ));
    }

    #[test]
    fn counts_have_a_range() {
        assert!(count((4, "101"), "a size", 100).is_err());
        assert!(count((4, "-1"), "a size", 100).is_err());
        assert!(count((4, ""), "a size", 100).is_err());
    }
}
