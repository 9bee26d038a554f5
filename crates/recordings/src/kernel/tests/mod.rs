//! Small synthetic kernel images in every form, and real ones if available.

mod bootable;
mod forms;
mod lzop;
mod modules;
mod packed;
mod real;
mod synthetic;

use super::{KernelError, KernelImage, OpenOptions, from_bytes};
use unwind_sim_unwind::image::Bytes;

fn open(bytes: Vec<u8>) -> Result<KernelImage, KernelError> {
    from_bytes("vmlinux", Bytes::from_vec(bytes), &OpenOptions::default())
}
