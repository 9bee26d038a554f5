//! Kernel images: `vmlinuz`, `vmlinux` and modules, with their ORC tables and their symbols.
//!
//! [`open`] detects whether a file is a bzImage or an ELF file, unpacks it, finds code and ORC
//! sections by section headers or symbols, and reads the symbols from the kallsyms table in the
//! image, which survives stripping. [`open_module`] opens a module at its load address.
//! [`KernelImage::kaslr`] determines the KASLR offset. [`bootable()`] unpacks a kernel for a machine
//! that boots it.
//!
//! Input is untrusted: sizes are bounded, and errors carry the location. Finding the files of a
//! running kernel and unwinding (`unwind::kernel`) are elsewhere.

mod bootable;
mod error;
mod kallsyms;
mod kaslr;
mod lzop;
mod module;
mod orc;
mod paging;
mod payload;
mod sections;
mod stacks;
mod symbols;
mod system_map;
#[cfg(test)]
mod tests;
mod tracers;
mod user;
mod vmlinux;

pub use bootable::{Bootable, bootable};
pub use error::{KernelError, KernelErrorKind};
pub use kallsyms::Form;
pub use kaslr::KASLR_ALIGN;
pub use module::{Module, ModuleLoad, is_module, module_from_bytes, open_module};
pub use orc::{EncodingSource, ToldLayout};
pub use paging::{PTI_USER, PageFault, PageTables};
pub use payload::{Compression, Payload, is_bzimage};
pub use sections::CodeSection;
pub use stacks::{MissingPlace, ProcessorStacks, StackPlaces, symbol};
pub use symbols::{KernelSymbol, KernelSymbols, SymbolSource};
pub use tracers::TracerPlaces;
pub use user::user_memory;

use crate::input_file::InputFile;
use crate::printable::PrintableName as _;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_perf_data::btf;
use unwind_sim_unwind::elf::ElfError;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Owner};
use unwind_sim_unwind::orc::Encoding;
use vmlinux::Vmlinux;

/// The types of a kernel.
pub type Btf = btf::Btf<Bytes>;

/// Options for opening a kernel image.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Take the symbols from this System.map instead of the image.
    pub system_map: Option<InputFile>,
    /// Use this ORC layout, whatever the kernel's version says.
    pub orc_layout: Option<ToldLayout>,
}

/// A kernel image.
#[derive(Debug)]
pub struct KernelImage {
    /// Code, ORC sections and the symbols of code.
    pub image: Arc<Image>,
    /// The version from the boot header or the banner, such as "6.1.0-50-cloud-amd64".
    pub version: Option<String>,
    /// The encoding of ORC entries; `None` without a table or if no encoding fits.
    pub encoding: Option<Encoding>,
    /// How `encoding` was determined.
    pub encoding_source: Option<EncodingSource>,
    /// `_text` to `_end` (SVMA); without these symbols, first to last code address.
    pub range: Range<u64>,
    /// All symbols, including data.
    pub symbols: KernelSymbols,
    /// The source of the symbols; `None` if there are none.
    pub symbol_source: Option<SymbolSource>,
    /// The form of the kallsyms table, if the symbols come from it.
    pub kallsyms_form: Option<Form>,
    /// Its types, if it has readable BTF.
    pub btf: Option<Btf>,
    /// The payload that the image was unpacked from.
    pub payload: Option<Payload>,
    /// Size of the ELF file, bytes.
    pub size: u64,
    /// The sections of its code.
    pub sections: Vec<CodeSection>,
    /// Non-fatal problems: what could not be read.
    pub problems: Vec<ElfError>,
}

/// Reads a `vmlinuz` or `vmlinux`.
///
/// # Errors
/// If it cannot be read, is neither of these, or is damaged, or if the System.map is invalid.
pub fn open(file: &InputFile, options: &OpenOptions) -> Result<KernelImage, KernelError> {
    from_bytes(&file.path().to_text(), whole(file)?, options)
}

/// Opens a kernel from its System.map alone: symbols, and the range of its code. That is all that
/// the frame pointer and guess unwinders need.
///
/// # Errors
/// If it cannot be read, is not a System.map, or does not tell where the kernel's code is.
pub fn open_system_map(map: &InputFile) -> Result<KernelImage, KernelError> {
    let name = map.path().to_text();
    let symbols = map_symbols(map)?;

    let text = symbols.range("_stext", "_etext");
    let text = text.ok_or_else(|| KernelErrorKind::MapWithoutText.of(&name))?;
    // From the first byte of the image to the last, with its data; without these symbols, its code.
    let range = symbols.range("_text", "_end").unwrap_or(text.clone());
    // `.init.text` is outside of `_stext` to `_etext`.
    let init = symbols.range("_sinittext", "_einittext");
    let text: Vec<Range<u64>> = std::iter::once(text).chain(init).collect();

    // Distributions name the file `System.map-RELEASE`.
    let file = map
        .path()
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let version = file.strip_prefix("System.map-").map(str::to_owned);

    let image = Image::new(ImageParts {
        name,
        symbols: symbols.code(&text),
        text,
        ..ImageParts::default()
    });

    Ok(KernelImage {
        image: Arc::new(image),
        range,
        symbol_source: Some(SymbolSource::SystemMap),
        ..KernelImage::of_symbols(symbols, version)
    })
}

/// Opens a `vmlinuz` or `vmlinux` in memory. `name` is used for the image and in errors.
///
/// # Errors
/// See [`open`].
pub fn from_bytes(
    name: &str,
    bytes: Bytes,
    options: &OpenOptions,
) -> Result<KernelImage, KernelError> {
    let map = options.system_map.as_ref();
    let map = map.map(|map| Ok((map, map_symbols(map)?))).transpose()?;

    let of = |what: KernelErrorKind| what.of(name);
    // A bzImage has the kernel compressed in it.
    let payload = is_bzimage(&bytes)
        .then(|| Payload::find(&bytes))
        .transpose()
        .map_err(of)?;
    let file = match &payload {
        Some(payload) => payload.unpack().map_err(of)?,
        None if bytes.starts_with(b"\x7fELF") => bytes,
        None => return Err(of(KernelErrorKind::NotKernel)),
    };

    let vmlinux = Vmlinux::read(name, &file).map_err(of)?;
    let (symbols, source, form) = match map {
        Some((map, symbols)) => {
            let text = &vmlinux.elf.parts.text;
            let inside = |s: KernelSymbol<'_>| text.iter().any(|r| r.contains(&s.address));
            // The map is of another kernel, or the stub that Debian installs.
            if !symbols.iter().any(inside) {
                return Err(KernelErrorKind::MapForeign.of(&map.path().to_text()));
            }
            (symbols, Some(SymbolSource::SystemMap), None)
        }
        None => own_symbols(&vmlinux),
    };

    // A bzImage names its release in the header; a vmlinux only has the banner.
    let version = payload.as_ref().and_then(|p| p.version.clone());
    let version = version.or_else(|| vmlinux.version(&symbols));

    let mut image = KernelImage {
        symbol_source: source,
        kallsyms_form: form,
        payload,
        size: file.len() as u64,
        ..KernelImage::of_symbols(symbols, version)
    };
    image.complete(vmlinux, options).map_err(of)?;
    Ok(image)
}

impl KernelImage {
    /// A kernel with nothing but symbols and a version.
    pub fn of_symbols(symbols: KernelSymbols, version: Option<String>) -> KernelImage {
        KernelImage {
            image: Arc::new(Image::new(Default::default())),
            version,
            encoding: None,
            encoding_source: None,
            range: 0..0,
            symbols,
            symbol_source: None,
            kallsyms_form: None,
            btf: None,
            payload: None,
            size: 0,
            sections: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// The functions: starts of code that have a name. A function with several names is one; what marks the
    /// ends of sections, and the padding before functions, is none.
    pub fn functions(&self) -> Vec<u64> {
        let code = self.image.symbols().iter().filter(|symbol| {
            // objtool and compilers name the bytes that are kept free before a function.
            let is_padding = symbol.name.starts_with("__pfx_") || symbol.name.starts_with("__cfi_");
            !is_padding && !sections::is_mark(&symbol.name)
        });
        let mut starts: Vec<u64> = code.map(|symbol| symbol.address).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Fills in everything that depends on the symbols and the version.
    fn complete(
        &mut self,
        mut vmlinux: Vmlinux,
        options: &OpenOptions,
    ) -> Result<(), KernelErrorKind> {
        vmlinux.narrow_text(&self.symbols);
        vmlinux.add_orc(&self.symbols);
        self.sections = sections::sections(vmlinux.code_sections(), &self.symbols);
        self.btf = vmlinux.btf(&self.symbols).and_then(|b| Btf::parse(b).ok());
        self.problems = vmlinux::problems(&mut vmlinux.elf);
        let mut parts = vmlinux.elf.parts;
        let found = orc::encoding(&parts, self.version.as_deref(), options.orc_layout.as_ref())?;
        (self.encoding, self.encoding_source) = found.unzip();
        let text = &parts.text;
        let start = text.iter().map(|r| r.start).min().unwrap_or(0);
        let end = text.iter().map(|r| r.end).max().unwrap_or(0);
        self.range = self.symbols.range("_text", "_end").unwrap_or(start..end);
        parts.symbols = self.symbols.code(text);
        self.image = Arc::new(Image::new(parts));
        Ok(())
    }
}

/// The symbols in the image, their source, and the kallsyms form.
fn own_symbols(vmlinux: &Vmlinux) -> (KernelSymbols, Option<SymbolSource>, Option<Form>) {
    if let Some(found) = vmlinux.kallsyms() {
        return (
            found.symbols,
            Some(SymbolSource::Kallsyms),
            Some(found.form),
        );
    }
    match vmlinux.symtab() {
        Some(symbols) => (symbols, Some(SymbolSource::Symtab), None),
        None => (KernelSymbols::default(), None, None),
    }
}

fn map_symbols(map: &InputFile) -> Result<KernelSymbols, KernelError> {
    let bytes = whole(map)?;
    system_map::read(&bytes).map_err(|what| what.of(&map.path().to_text()))
}

fn whole(file: &InputFile) -> Result<Bytes, KernelError> {
    let bytes = file.whole();
    bytes.map_err(|error| KernelErrorKind::from(error).of(&file.path().to_text()))
}

/// Are these the bytes of a kernel's ELF file?
pub fn is_vmlinux(bytes: Owner) -> bool {
    let len = (*bytes).as_ref().len();
    Bytes::new(bytes, 0..len).is_some_and(|whole| Vmlinux::read("", &whole).is_ok())
}
