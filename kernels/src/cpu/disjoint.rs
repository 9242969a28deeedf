//! A mutable slice that several tasks write to at once, each its own rectangle of it.
//!
//! Every rectangle handed out is a guard that is recorded while it lives; asking for one that overlaps a living
//! one panics. As only a few (one or two a thread) live at a time the check is cheap, and it is always on: it is what
//! makes the safe methods here sound.
#![allow(
    unsafe_code,
    reason = "splits one mutable slice among tasks; overlap is checked"
)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows and columns of a matrix.
#[derive(Clone, Debug)]
struct Rectangle {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Rectangle {
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        meet(&self.rows, &other.rows) && meet(&self.columns, &other.columns)
    }
}

/// Hands out non-overlapping mutable parts of one slice, seen as a `(rows, width)` matrix.
pub(crate) struct DisjointMut<'a, T> {
    pointer: *mut T,
    rows: usize,
    width: usize,
    living: Mutex<Vec<Rectangle>>,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: parts given to other threads are exclusive (no two living parts overlap), so sharing this is the same as
// sending `&mut [T]` pieces to those threads, which `T: Send` allows.
unsafe impl<T: Send> Sync for DisjointMut<'_, T> {}
// SAFETY: it stands for a `&mut [T]`, which may be sent when `T: Send`.
unsafe impl<T: Send> Send for DisjointMut<'_, T> {}

impl<'a, T> DisjointMut<'a, T> {
    /// Wraps a flat slice: a matrix of one row.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self::over(slice, 1, slice.len())
    }

    /// Wraps a `(rows, width)` matrix.
    ///
    /// # Panics
    /// When the slice is not a whole number of rows.
    pub(crate) fn matrix(slice: &'a mut [T], width: usize) -> Self {
        assert!(
            width > 0 && slice.len().is_multiple_of(width),
            "a slice of {} values is not a whole number of rows of width {width}",
            slice.len()
        );
        let rows = slice.len() / width;
        Self::over(slice, rows, width)
    }

    fn over(slice: &'a mut [T], rows: usize, width: usize) -> Self {
        debug_assert_eq!(slice.len(), rows * width);
        Self {
            pointer: slice.as_mut_ptr(),
            rows,
            width,
            living: Mutex::new(Vec::new()),
            slice: PhantomData,
        }
    }

    /// Takes `range` of a flat slice made by [`DisjointMut::new`].
    ///
    /// # Panics
    /// When the range is out of bounds or overlaps a living part.
    pub(crate) fn part(&self, range: Range<usize>) -> Part<'_, T> {
        assert_eq!(self.rows, 1, "take rows or a tile of a matrix");
        Part(self.tile(0..1, range))
    }

    /// Takes whole rows of a matrix, as one contiguous slice.
    ///
    /// # Panics
    /// When the rows are out of bounds or overlap a living part.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Part<'_, T> {
        Part(self.tile(rows, 0..self.width))
    }

    /// Takes a rectangle of a matrix.
    ///
    /// # Panics
    /// When the rectangle is out of bounds or overlaps a living part.
    pub(crate) fn tile(&self, rows: Range<usize>, columns: Range<usize>) -> Tile<'_, T> {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows {rows:?} are outside of a matrix of {} rows",
            self.rows
        );
        assert!(
            columns.start <= columns.end && columns.end <= self.width,
            "columns {columns:?} are outside of a matrix of width {}",
            self.width
        );
        let rectangle = Rectangle { rows, columns };
        let mut living = self.lock();
        if let Some(other) = living.iter().find(|other| other.overlaps(&rectangle)) {
            let other = other.clone();
            drop(living);
            panic!("{rectangle:?} overlaps {other:?}, which another task holds");
        }
        living.push(rectangle.clone());
        drop(living);
        let offset = rectangle.rows.start * self.width + rectangle.columns.start;
        Tile {
            // SAFETY: the rectangle lies inside the slice, so its first element is at most one past the end.
            pointer: unsafe { self.pointer.add(offset) },
            rectangle,
            stride: self.width,
            release: &self.living,
            slice: PhantomData,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rectangle>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Exclusive use of a rectangle of a matrix, until dropped.
pub(crate) struct Tile<'a, T> {
    pointer: *mut T,
    rectangle: Rectangle,
    stride: usize,
    release: &'a Mutex<Vec<Rectangle>>,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a tile is exclusive use of its elements, like `&mut [T]`.
unsafe impl<T: Send> Send for Tile<'_, T> {}

impl<T> Tile<'_, T> {
    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rectangle.rows.len()
    }

    /// Returns the number of columns.
    pub(crate) fn columns(&self) -> usize {
        self.rectangle.columns.len()
    }

    /// Returns the distance between the starts of two rows.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the address of the first element; row `i`, column `j` is at `i * stride + j`.
    pub(crate) fn pointer(&mut self) -> *mut T {
        self.pointer
    }

    /// Returns row `row`, counted from the rectangle's own first row.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let columns = self.columns();
        // SAFETY: row and columns lie inside the rectangle, which lies inside the slice and is exclusive to `self`;
        // the result borrows `self` mutably, so no two rows live at once.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(row * self.stride), columns) }
    }
}

impl<T> Drop for Tile<'_, T> {
    fn drop(&mut self) {
        let mut living = self.release.lock().unwrap_or_else(PoisonError::into_inner);
        // An empty rectangle may be held twice; which of the equal records goes does not matter.
        let position = living.iter().position(|other| {
            other.rows == self.rectangle.rows && other.columns == self.rectangle.columns
        });
        if let Some(position) = position {
            living.swap_remove(position);
        }
    }
}

/// Exclusive use of a contiguous part, until dropped; derefs to a slice.
pub(crate) struct Part<'a, T>(Tile<'a, T>);

impl<T> Part<'_, T> {
    fn len(&self) -> usize {
        self.0.rows() * self.0.columns()
    }
}

impl<T> Deref for Part<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: a part has whole rows, or one row, so its elements are contiguous; they are exclusive to `self`.
        unsafe { std::slice::from_raw_parts(self.0.pointer, self.len()) }
    }
}

impl<T> DerefMut for Part<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer, self.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_write_where_they_should() {
        let mut values = vec![0; 12];
        let shared = DisjointMut::matrix(&mut values, 4);
        let mut left = shared.tile(0..3, 0..2);
        let mut right = shared.tile(1..3, 2..4);
        left.row(2).fill(1);
        right.row(0)[1] = 2;
        drop((left, right));
        shared.rows(0..1).fill(3);
        assert_eq!(values, [3, 3, 3, 3, 0, 0, 0, 2, 1, 1, 0, 0]);
    }

    #[test]
    fn parts_of_a_flat_slice() {
        let mut values = vec![0; 6];
        let shared = DisjointMut::new(&mut values);
        let mut a = shared.part(0..2);
        let mut b = shared.part(2..6);
        a[1] = 5;
        b[3] = 7;
        drop((a, b));
        shared.part(1..3)[1] = 9;
        assert_eq!(values, [0, 5, 9, 0, 0, 7]);
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn overlap_panics() {
        let mut values = vec![0; 12];
        let shared = DisjointMut::matrix(&mut values, 4);
        let _left = shared.tile(0..3, 0..2);
        let _again = shared.tile(2..3, 1..4);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn out_of_bounds_panics() {
        let mut values = vec![0; 12];
        DisjointMut::matrix(&mut values, 4).tile(0..3, 3..5);
    }
}
