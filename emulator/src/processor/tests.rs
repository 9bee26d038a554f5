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
        ("v2,amd:zen4,-popcnt,+lzcnt", "v2,amd,-popcnt,+lzcnt"),
        ("v2,+movbe,-movbe", "v2,intel"),
    ] {
        let processor = parse(text).expect(text);
        assert_eq!(processor.to_string(), shown);
        assert_eq!(parse(shown), Ok(processor));
    }
    assert_eq!(parse("v2,intel"), Ok(Processor::default()));
}

#[test]
fn errors_say_what_there_is() {
    for (text, error) in [
        ("", "unknown level ``; known: v2, or host"),
        ("v9,intel", "unknown level `v9`"),
        ("v2,via", "unknown vendor `via`; known: intel, amd"),
        ("v2,", "unknown vendor ``"),
        ("v2,amd:nehalem", "unknown generation `nehalem` of amd"),
        (
            "v2,amd,intel",
            "`intel` is not a feature; write +NAME or -NAME",
        ),
        ("v2,intel,+avx", "unknown feature `avx`; known: sse3, ssse3"),
        ("host", "unknown level `host`"),
    ] {
        let shown = parse(text).expect_err(text).to_string();
        assert!(shown.starts_with(error), "{shown}");
    }
    let host = || Processor::new(Vendor::Amd);
    let processor = Processor::parse("host,+movbe", host).expect("a processor");
    assert_eq!(processor.to_string(), "v2,amd,+movbe");
}

#[test]
fn features_are_in_the_order_of_their_numbers() {
    for (number, (feature, name, ..)) in FEATURES.into_iter().enumerate() {
        assert_eq!(feature as usize, number, "{name}");
        assert_eq!(feature.as_str(), name);
    }
}

#[test]
fn any_computer_has_a_closest_processor() {
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
        ("GenuineIntel", 6, 0x55, "v2,intel:skylake"),
        ("GenuineIntel", 6, 0x0f, "v2,intel"),
        ("AuthenticAMD", 25, 17, "v2,amd"),
        ("AuthenticAMD", 26, 2, "v2,amd"),
        ("AuthenticAMD", 25, 1, "v2,amd:zen3"),
        ("AuthenticAMD", 25, 16, "v2,amd:zen3"),
        ("AuthenticAMD", 23, 49, "v2,amd:zen"),
        ("AuthenticAMD", 21, 2, "v2,amd:zen"),
        ("HygonGenuine", 24, 0, "v2,amd:zen"),
        ("  Shanghai  ", 7, 59, "v2,intel:skylake"),
        ("CentaurHauls", 7, 59, "v2,intel:skylake"),
        ("QEMU", 0, 0, "v2,intel"),
    ] {
        assert_eq!(info(vendor, family, model, all).to_string(), shown);
    }
    let flags = format!("{all} abm bmi1 movbe");
    let shown = info("AuthenticAMD", 25, 17, &flags).to_string();
    assert_eq!(shown, "v2,amd,+movbe,+lzcnt,+tzcnt");
    let shown = info("GenuineIntel", 6, 0x1a, &all.replace(" fsgsbase", "")).to_string();
    assert_eq!(shown, "v2,intel,-fsgsbase");
    // An empty file stands for a system without /proc.
    assert_eq!(Processor::of_cpuinfo(""), Processor::default());
}
