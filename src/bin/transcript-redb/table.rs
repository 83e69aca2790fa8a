//! Tables that fit the terminal.

use std::io;

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid};
use unicode_width::UnicodeWidthStr as _;

use crate::output::{BOLD, Output};
use crate::text::{cut, safe_line};

/// The narrowest that a column is cut to.
const LEAST_COLUMNS: usize = 8;

/// A table. Its first row are headings.
#[derive(Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    /// Columns of numbers.
    right: Vec<usize>,
    /// The columns that give way where there is no room, the first one first.
    elastic: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. Those of `right` hold numbers; those of `elastic` are cut where there is no room.
    pub fn new(headings: &[&'static str], right: &[usize], elastic: &[usize]) -> Self {
        Self {
            headings: headings.to_vec(),
            right: right.to_vec(),
            elastic: elastic.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Its texts may be as they were stored.
    pub fn row(&mut self, row: impl IntoIterator<Item = String>) {
        let safe = row.into_iter().map(|cell| safe_line(&cell).into_owned());
        self.rows.push(safe.collect());
    }

    /// Prints it.
    pub fn print(mut self, output: &mut Output) -> io::Result<()> {
        if let Some(columns) = output.columns() {
            self.fit(columns);
        }
        let mut grid = Grid::new();
        grid.load_style(comfy_table::presets::NOTHING);
        grid.set_content_arrangement(ContentArrangement::Disabled);
        grid.set_header(self.headings.clone());
        grid.add_rows(self.rows);
        for (at, column) in grid.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.right.contains(&at) {
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

    /// Cuts the elastic columns until a row fits.
    fn fit(&mut self, columns: usize) {
        let count = self.headings.len();
        let mut total: usize = (0..count).map(|at| self.width_of(at) + 2).sum::<usize>() - 2;
        for at in self.elastic.clone() {
            if total <= columns {
                return;
            }
            let width = self.width_of(at);
            let least = LEAST_COLUMNS.min(width);
            let new = width.saturating_sub(total - columns).max(least);
            total -= width - new;
            for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                *cell = cut(cell, new).into_owned();
            }
        }
    }
}
