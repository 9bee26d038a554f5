//! Images in a trace: image blocks, and the data and symbols blocks that they refer to.
//!
//! An image block holds the image's name and the locations of its parts. The bytes of all its
//! sections are stored one after another in data blocks; a section inside one uncompressed block is
//! read in place. A later image block with the number of an earlier image adds to that image.

mod read;
mod write;

pub(crate) use read::{read_images, referred};
pub(crate) use write::{ImageWriter, Part};

#[cfg(test)]
mod tests;
