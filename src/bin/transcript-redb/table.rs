//! Tables that fit the terminal.

use std::io;

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid};
use unicode_width::UnicodeWidthStr as _;

use crate::output::{BOLD, Output};
use crate::text::{cut, safe_line};

/// The narrowest that a column is cut to.
const LEAST_COLUMNS: usize = 8;
/// The room that the first column that gives way keeps, as long as others can be left out.
const ROOM_COLUMNS: usize = 20;

/// A table. Its first row are headings.
#[derive(Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    /// Columns of numbers.
    right: Vec<usize>,
    /// The columns that give way where there is no room, the first one first.
    elastic: Vec<usize>,
    /// The columns that are left out where there is no room, the first one first.
    spare: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. Those of `right` hold numbers; those of `elastic` are cut where there is no room.
    pub fn new(headings: &[&'static str], right: &[usize], elastic: &[usize]) -> Self {
        Self {
            headings: headings.to_vec(),
            right: right.to_vec(),
            elastic: elastic.to_vec(),
            spare: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Leaves these out where there is no room, the first one first.
    pub fn spare(mut self, spare: &[usize]) -> Self {
        self.spare = spare.to_vec();
        self
    }

    /// Adds a row. Its texts may be as they were stored.
    pub fn row(&mut self, row: impl IntoIterator<Item = String>) {
        let safe = row.into_iter().map(|cell| safe_line(&cell).into_owned());
        self.rows.push(safe.collect());
    }

    /// Prints it.
    pub fn print(mut self, output: &mut Output) -> io::Result<()> {
        let mut shown: Vec<usize> = (0..self.headings.len()).collect();
        if let Some(columns) = output.columns() {
            self.fit(columns, &mut shown);
        }
        let mut grid = Grid::new();
        grid.load_style(comfy_table::presets::NOTHING);
        grid.set_content_arrangement(ContentArrangement::Disabled);
        grid.set_header(shown.iter().filter_map(|at| self.headings.get(*at)));
        for row in &self.rows {
            grid.add_row(shown.iter().filter_map(|at| row.get(*at)));
        }
        for (at, column) in shown.iter().zip(grid.column_iter_mut()) {
            column.set_padding((0, 2));
            if self.right.contains(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for (at, line) in grid.lines().enumerate() {
            let line = line.trim_end();
            if at == 0 {
                output.styled(BOLD, line)?;
            } else {
                output.line(line)?;
            }
        }
        Ok(())
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.width()).max().unwrap_or(0);
        let heading = self
            .headings
            .get(column)
            .map_or(0, |heading| heading.width());
        widest.max(heading)
    }

    /// Leaves columns out and cuts others until a row fits.
    fn fit(&mut self, columns: usize, shown: &mut Vec<usize>) {
        let first = self.elastic.first().map_or(0, |at| self.width_of(*at));
        let given = first.saturating_sub(ROOM_COLUMNS);
        for spare in self.spare.clone() {
            if self.total(shown).saturating_sub(given) <= columns {
                break;
            }
            shown.retain(|at| *at != spare);
        }
        for at in self.elastic.clone() {
            let total = self.total(shown);
            if total <= columns {
                return;
            }
            let width = self.width_of(at);
            let least = LEAST_COLUMNS.min(width);
            let new = width.saturating_sub(total - columns).max(least);
            for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                *cell = cut(cell, new).into_owned();
            }
        }
    }

    fn total(&self, shown: &[usize]) -> usize {
        let widths = shown.iter().map(|at| self.width_of(*at) + 2);
        widths.sum::<usize>().saturating_sub(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["KEY", "AGENT", "COUNT", "TITLE"], &[2], &[3]).spare(&[1]);
        table.row(["key-1", "an-agent", "1,234", &"日本語".repeat(20)].map(str::to_owned));
        table.row(["key-2", "another", "5", "short"].map(str::to_owned));
        table
    }

    #[test]
    fn a_table_fits_the_terminal_by_cutting_and_then_by_leaving_out() {
        for (columns, left) in [(200, 4), (60, 4), (45, 4), (40, 3), (25, 3)] {
            let mut table = table();
            let mut shown = vec![0, 1, 2, 3];
            table.fit(columns, &mut shown);
            assert!(table.total(&shown) <= columns, "{columns}");
            assert_eq!(shown.len(), left, "{columns}");
            assert_eq!(table.rows[1][3], "short");
        }
    }

    #[test]
    fn rows_are_made_safe() {
        let mut table = Table::new(&["A"], &[], &[]);
        table.row(["a\x1b\nb".to_owned()]);
        assert_eq!(table.rows[0][0], "a\\u{1b} b");
    }
}
