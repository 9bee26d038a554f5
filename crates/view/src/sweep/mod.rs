//! `tables check --files`: proves the tables of many files, and writes a row for each function.
//!
//! [`list`] says which files, [`run`] checks them on several threads and hands them over in order,
//! [`part`] is the file that rows are appended to, and that an interrupted sweep goes on with.

pub mod list;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod part;
pub mod rows;
pub mod run;
