//! What a complaint is about, once it is known who made the code and what the code proves.

use super::kind::Kind;
use super::origin::Language;
use unwind_sim_recordings::made::Made;

/// What is known of a complaint at the end.
pub(super) struct Known<'a> {
    pub(super) kind: Kind,
    /// The file to blame, or what its memory is called.
    pub(super) image: &'a str,
    pub(super) function: &'a str,
    pub(super) language: Language,
    /// The code proves the row to blame, or contradicts it.
    pub(super) is_proven: bool,
    pub(super) is_contradicted: bool,
    /// What to say if it does.
    pub(super) if_proven: Option<String>,
    /// It is known what generates code in the process.
    pub(super) has_runtime: bool,
    pub(super) made: &'a Made,
}

/// Another kind than the walk alone told, and what to say of it.
pub(super) fn refined(known: Known<'_>) -> Option<(Kind, Option<String>)> {
    // Without its notes, a core names no file.
    let is_unnamed = matches!(known.image, "//anon" | "anonymous memory");
    match known.kind {
        // What is there is not what the code put there.
        kind if known.is_proven && (known.if_proven.is_some() || kind == Kind::WrongRow) => {
            const WHAT: &str = "the code proves the row, so the return address or a saved register was overwritten";
            let note = known.if_proven.unwrap_or_else(|| WHAT.to_owned());
            Some((Kind::OverwrittenReturn, Some(note)))
        }
        // The stack alone does not say whether the word or the row is wrong; the code does.
        Kind::Other if known.if_proven.is_some() && known.is_contradicted => {
            Some((Kind::WrongRow, known.if_proven))
        }
        Kind::Jit if known.made.is_cut && is_unnamed && !known.has_runtime => {
            Some((Kind::CutCore, None))
        }
        // rustc writes no FDE for the `main` that C's start code calls if panics abort (1.95).
        Kind::NoRow if known.function == "main" && known.language == Language::Rust => {
            const WHAT: &str =
                "rustc writes no row for this main, which only calls that of the program";
            Some((Kind::StartCode, Some(WHAT.to_owned())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(change: impl FnOnce(&mut Known<'_>, &mut Made)) -> Option<Kind> {
        let mut made = Made::default();
        let mut known = Known {
            kind: Kind::NoRow,
            image: "/bin/prog",
            function: "main",
            language: Language::Gcc,
            is_proven: false,
            is_contradicted: false,
            if_proven: None,
            has_runtime: false,
            made: &Made::default(),
        };
        change(&mut known, &mut made);
        refined(Known {
            made: &made,
            ..known
        })
        .map(|(kind, _)| kind)
    }

    #[test]
    fn a_proven_row_is_not_to_blame() {
        let wrong = |is_proven| {
            kind(|known, _| (known.kind, known.is_proven) = (Kind::WrongRow, is_proven))
        };
        assert_eq!(wrong(true), Some(Kind::OverwrittenReturn));
        assert_eq!(wrong(false), None);
        // A row that is right says nothing about another kind.
        assert_eq!(kind(|known, _| known.is_proven = true), None);
    }

    /// A return address that is not behind a call: either the word or the row that led to it is wrong.
    #[test]
    fn the_code_says_whether_a_word_or_a_row_is_wrong() {
        let not_behind_call = |is_proven, is_contradicted| {
            kind(|known, _| {
                known.kind = Kind::Other;
                (known.is_proven, known.is_contradicted) = (is_proven, is_contradicted);
                known.if_proven = Some("the return address is 0x1234".to_owned());
            })
        };
        assert_eq!(not_behind_call(true, false), Some(Kind::OverwrittenReturn));
        assert_eq!(not_behind_call(false, true), Some(Kind::WrongRow));
        assert_eq!(not_behind_call(false, false), None);
    }

    #[test]
    fn rustcs_main_without_a_row_is_start_code() {
        let rust = |function: &'static str| {
            kind(|known, _| (known.function, known.language) = (function, Language::Rust))
        };
        assert_eq!(rust("main"), Some(Kind::StartCode));
        assert_eq!(rust("prog::main"), None);
        assert_eq!(kind(|_, _| {}), None, "C's main has rows");
    }

    #[test]
    fn what_a_cut_core_does_not_name_is_not_generated() {
        let jit = |image: &'static str, is_cut, has_runtime| {
            kind(|known, made| {
                (known.kind, known.image, known.has_runtime) = (Kind::Jit, image, has_runtime);
                made.is_cut = is_cut;
            })
        };
        assert_eq!(jit("//anon", true, false), Some(Kind::CutCore));
        assert_eq!(jit("//anon", false, false), None);
        assert_eq!(jit("//anon", true, true), None);
        assert_eq!(jit("/memfd:x", true, false), None);
    }
}
