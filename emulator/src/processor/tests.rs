//! The grammar, and the closest processor to a computer's.

use super::*;

fn parse(text: &str) -> Result<Processor, ParseError> {
    text.parse()
}

#[test]
fn texts_and_processors_are_the_same() {
    for (text, shown) in [
        ("v2", "v2,intel"),
        ("v2,intel", "v2,intel"),
        ("v2,intel:nehalem", "v2,intel"),
        ("v2,intel:skylake", "v2,intel:skylake"),
        ("v2,amd", "v2,amd"),
        ("v2,amd:zen", "v2,amd:zen"),
        ("v2,+movbe", "v2,intel,+movbe"),
        ("v2,amd:zen3,-popcnt,+lzcnt", "v2,amd,-popcnt,+lzcnt"),
        ("v2,+movbe,-movbe", "v2,intel"),
        ("v2,+tzcnt", "v2,intel,+bmi1"),
        ("v1", "v1,intel"),
        ("v1,amd,+sse3", "v1,amd,+sse3"),
        ("v3", "v3,intel"),
        ("v3,intel:skylake,-avx2,+aes", "v3,intel,-avx2,+aes"),
        ("v3,intel:nehalem", "v3,intel:nehalem"),
        ("v3,amd:zen4", "v3,amd:zen4"),
    ] {
        // What is shown is the short form, and can be read again.
        let processor = parse(text).expect(text);
        assert_eq!(processor.to_string(), shown);
        assert_eq!(parse(shown), Ok(processor));
    }

    assert_eq!(parse("v3,intel"), Ok(Processor::default()));
}

#[test]
fn errors_say_what_there_is() {
    for (text, error) in [
        ("", "unknown level ``; known: v1, v2, v3, or host"),
        ("v9,intel", "unknown level `v9`"),
        ("v2,via", "unknown vendor `via`; known: intel, amd"),
        ("v2,", "unknown vendor ``"),
        ("v2,amd:nehalem", "unknown generation `nehalem` of amd"),
        (
            "v2,amd,intel",
            "`intel` is not a feature; write +NAME or -NAME",
        ),
        (
            "v2,intel,+avx9",
            "unknown feature `avx9`; known: sse3, ssse3",
        ),
        ("host", "unknown level `host`"),
    ] {
        let shown = parse(text).expect_err(text).to_string();
        assert!(shown.starts_with(error), "{shown}");
    }
    let host = || Processor::new(Vendor::Amd);
    let processor = Processor::parse("host,+aes", host).expect("a processor");
    assert_eq!(processor.to_string(), "v3,amd,+aes");
}

#[test]
fn features_are_in_the_order_of_their_numbers() {
    for (number, feature) in Feature::all().enumerate() {
        assert_eq!(feature as usize, number, "{feature:?}");
        assert_eq!(Feature::from_name(feature.as_str()), Some(feature));
    }
}

/// The levels of the psABI, table 3.1, without what every x86-64 processor has.
#[test]
fn levels_have_the_features_of_the_psabi() {
    let v2 = "sse3 ssse3 cx16 sse4.1 sse4.2 popcnt lahf";
    let v3 = "avx avx2 bmi1 bmi2 f16c fma lzcnt movbe xsave";
    for vendor in Vendor::ALL {
        let [one, two, three] = Level::ALL.map(|level| Processor::of_level(level, vendor));
        let has = |processor: Processor, names: &str| {
            let mut names = names.split(' ').filter_map(Feature::from_name);
            names.all(|feature| processor.has(feature))
        };
        assert_eq!(Feature::all().filter(|f| one.has(*f)).count(), 0);
        assert!(has(two, v2) && !two.has(Feature::Avx) && !two.has(Feature::Bmi1));
        assert!(has(three, v2) && has(three, v3));
        assert_eq!((two.xcr0(), three.xcr0()), (3, 7));
    }
}

#[test]
fn any_computer_has_a_closest_processor() {
    // The vendor and the flags are those of the first processor in the file.
    let info = |vendor: &str, family: u32, model: u32, flags: &str| {
        let text = format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: x\nflags\t\t: {flags}\n\nprocessor\t: 1\nvendor_id\t: Other\n"
        );
        Processor::of_cpuinfo(&text)
    };

    let all = "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm xsave xsaveopt xsavec fsgsbase rdtscp";

    for (vendor, family, model, shown) in [
        ("GenuineIntel", 6, 0x1a, "v2,intel"),
        ("GenuineIntel", 6, 0x3c, "v2,intel"),
        ("GenuineIntel", 6, 0x4e, "v2,intel:skylake"),
        ("GenuineIntel", 6, 0x55, "v2,intel:skylake"),
        ("GenuineIntel", 6, 0x0f, "v2,intel"),
        ("AuthenticAMD", 25, 17, "v2,amd:zen4"),
        ("AuthenticAMD", 26, 2, "v2,amd:zen5"),
        ("AuthenticAMD", 25, 1, "v2,amd"),
        ("AuthenticAMD", 25, 16, "v2,amd"),
        ("AuthenticAMD", 23, 49, "v2,amd:zen"),
        ("AuthenticAMD", 21, 2, "v2,amd:zen"),
        ("HygonGenuine", 24, 0, "v2,amd:zen"),
        // Processors of Zhaoxin have either of these names.
        ("  Shanghai  ", 7, 59, "v2,intel:skylake"),
        ("CentaurHauls", 7, 59, "v2,intel:skylake"),
        ("QEMU", 0, 0, "v2,intel"),
    ] {
        assert_eq!(info(vendor, family, model, all).to_string(), shown);
    }

    let flags = format!("{all} abm bmi1 movbe");
    let shown = info("AuthenticAMD", 25, 17, &flags).to_string();
    assert_eq!(shown, "v2,amd:zen4,+movbe,+lzcnt,+bmi1");
    let shown = info("GenuineIntel", 6, 0x1a, &all.replace(" fsgsbase", "")).to_string();
    assert_eq!(shown, "v2,intel,-fsgsbase");
    let flags = format!("{all} abm bmi1 movbe avx avx2 fma f16c bmi2 aes");
    let shown = info("AuthenticAMD", 26, 2, &flags).to_string();
    assert_eq!(shown, "v3,amd:zen5,+aes");

    // An empty file stands for a system without /proc.
    assert_eq!(Processor::of_cpuinfo("").to_string(), "v2,intel");
}
