//! The zstd decoder, if built in (feature `zstd`).

use super::error::ZstdFault;

/// Bytes read and written by one call of [`Decoder::run`].
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
}

/// A zstd stream decoder.
#[cfg(feature = "zstd")]
pub(super) struct Decoder(zstd::stream::raw::Decoder<'static>);

#[cfg(feature = "zstd")]
impl Decoder {
    /// Log2 of the maximum window; used by the highest level that perf offers.
    const WINDOW_LOG_MAX: u32 = 27;

    pub(super) fn new() -> Result<Decoder, ZstdFault> {
        use zstd::stream::raw::DParameter;
        let init = |_| ZstdFault::Init;
        let mut decoder = zstd::stream::raw::Decoder::new().map_err(init)?;
        decoder
            .set_parameter(DParameter::WindowLogMax(Self::WINDOW_LOG_MAX))
            .map_err(init)?;
        Ok(Decoder(decoder))
    }

    /// Decodes some of `input` into `room`.
    pub(super) fn run(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, ZstdFault> {
        use zstd::stream::raw::Operation as _;
        let step = self.0.run_on_buffers(input, room);
        let step = step.map_err(|_| ZstdFault::Data)?;
        Ok(Step {
            read: step.bytes_read,
            written: step.bytes_written,
        })
    }
}

/// Built without a decoder.
#[cfg(not(feature = "zstd"))]
pub(super) enum Decoder {}

#[cfg(not(feature = "zstd"))]
impl Decoder {
    pub(super) fn new() -> Result<Decoder, ZstdFault> {
        Err(ZstdFault::NotBuilt)
    }

    pub(super) fn run(&mut self, _: &[u8], _: &mut [u8]) -> Result<Step, ZstdFault> {
        match *self {}
    }
}
