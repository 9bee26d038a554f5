//! Images as bytes: image blocks, and the data and symbols blocks they refer to.
//!
//! An image block names the image and the places of its parts. The bytes of all its sections, one
//! behind the other, lie in data blocks; a section that lies in one uncompressed block is read in
//! place. A later image block with the number of an earlier image adds to it.

mod read;
mod write;

pub(crate) use read::{read_images, referred};
pub(crate) use write::{ImageWriter, Part};

#[cfg(test)]
mod tests;
