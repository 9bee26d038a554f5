//! The drawings of README, of the pages and of the book: each stands behind the command that makes it, in
//! a comment of the page, and is what that command writes now. What an image says to those who do not
//! see it is its own title.
//!
//! `INSTA_UPDATE=always cargo test --test suite docs_commands::drawings` writes images and titles anew.

use super::{is_updating, pages};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a comment with the command of a drawing begins with.
const COMMENT: &str = "<!-- unwind-sim report ";
/// The folder of all drawings. The book takes its files from there.
const FOLDER: &str = "docs/book/src/drawings";
/// The size of a drawing, at most, in bytes: of one state, and of one with its neighbours.
const ONE_BYTES_MAX: usize = 16 << 10;
const EMBEDDED_BYTES_MAX: usize = 32 << 10;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A drawing in a page.
struct Drawing {
    /// The page, and the number of the line with the image, from 0.
    page: String,
    line: usize,
    /// The words behind `unwind-sim report`.
    command: String,
    /// The image, below the repository.
    path: PathBuf,
    /// What is said to those who do not see it.
    alternative: String,
}

impl Drawing {
    /// The drawing of the comment in `line`, whose image is in the line below.
    fn of(page: &str, text: &str, line: usize) -> Result<Drawing, String> {
        let place = format!("{page}:{}", line + 1);
        let mut lines = text.lines().skip(line);
        let comment = lines.next().unwrap_or_default();
        let command = comment.strip_prefix(COMMENT);
        let command = command.and_then(|rest| rest.strip_suffix(" -->"));
        let command = command.ok_or(format!("{place}: the comment does not end in its line"))?;

        let image = lines.next().unwrap_or_default();
        let (target, alternative) =
            image_of(image).ok_or(format!("{place}: no image in the line below"))?;
        // The script of an SVG runs in an `<object>`, not in an image.
        let is_live = image.starts_with(&format!("<object data=\"{target}\" type="));
        if command.starts_with("--embed") != is_live {
            return Err(format!(
                "{place}: --embed needs an <object>, and --svg has none"
            ));
        }

        let folder = Path::new(page).parent().expect("a page lies in a folder");
        Ok(Drawing {
            page: page.to_owned(),
            line: line + 1,
            command: command.to_owned(),
            path: folder.join(target),
            alternative: unescaped(alternative),
        })
    }

    /// What the command writes now.
    fn made(&self) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drawing.svg");
        let made = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
            .arg("report")
            .args(self.command.split_whitespace())
            .arg("-o")
            .arg(&path)
            .current_dir(top())
            .output()
            .expect("the tool runs");
        if !made.status.success() {
            let errors = String::from_utf8_lossy(&made.stderr);
            return Err(format!(
                "{}:{}: {}\n{errors}",
                self.page, self.line, self.command
            ));
        }
        Ok(std::fs::read_to_string(path).expect("a drawing is text"))
    }
}

/// The target and the text of an image: `![TEXT](TARGET)`, or an `<img>` that may be in an `<object>`.
fn image_of(line: &str) -> Option<(&str, &str)> {
    if let Some(rest) = line.strip_prefix("![") {
        let (text, rest) = rest.split_once("](")?;
        return Some((rest.strip_suffix(')')?, text));
    }
    let (_, image) = line.split_once("<img src=\"")?;
    let (target, rest) = image.split_once("\" alt=\"")?;
    let (text, _) = rest.split_once('"')?;
    Some((target, text))
}

/// The title of an image, which is XML.
fn title(image: &str) -> Option<&str> {
    let (_, rest) = image.split_once("<title id=\"title\">")?;
    Some(rest.split_once("</title>")?.0)
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&amp;", "&")
}

/// All drawings, and what is wrong with their comments.
fn all() -> (Vec<Drawing>, Vec<String>) {
    let mut names = vec!["README.md".to_owned()];
    names.extend(pages("docs"));
    names.extend(pages("docs/book/src"));
    let (mut drawings, mut faults) = (Vec::new(), Vec::new());
    for name in names {
        let text = std::fs::read_to_string(top().join(&name)).expect("the page");
        for (line, comment) in text.lines().enumerate() {
            if comment.starts_with(COMMENT) {
                match Drawing::of(&name, &text, line) {
                    Ok(drawing) => drawings.push(drawing),
                    Err(fault) => faults.push(fault),
                }
            }
        }
    }
    (drawings, faults)
}

/// Writes the text of a drawing's image into its page.
fn retitle(drawing: &Drawing, title: &str) {
    let path = top().join(&drawing.page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = &mut lines[drawing.line];
    let (_, old) = image_of(line).expect("an image");
    // Text of HTML in HTML, and plain in Markdown.
    let new = if line.starts_with("![") {
        unescaped(title)
    } else {
        title.to_owned()
    };
    *line = line.replace(old, &new);
    std::fs::write(path, lines.join("\n") + "\n").expect("the page is written");
}

#[test]
fn drawings_are_what_their_commands_write() {
    let (drawings, mut faults) = all();
    // If comments were no longer recognized, nothing would be tested.
    assert!(drawings.len() >= 10, "only {} drawings", drawings.len());

    for drawing in &drawings {
        let path = top().join(&drawing.path);
        let image = match drawing.made() {
            Ok(image) => image,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let title = title(&image).expect("a drawing has a title");

        if is_updating() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &image).expect("the drawing is written");
            retitle(drawing, title);
            continue;
        }

        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let place = format!("{}:{}", drawing.page, drawing.line);
        if stored != image {
            faults.push(format!(
                "{place}: {} is not what its command writes",
                drawing.path.display()
            ));
        }
        if drawing.alternative != unescaped(title) {
            faults.push(format!("{place}: its text is not `{}`", unescaped(title)));
        }
        // An embedded drawing has all of its states in the file.
        let most = if drawing.command.starts_with("--embed") {
            EMBEDDED_BYTES_MAX
        } else {
            ONE_BYTES_MAX
        };
        if image.len() > most {
            faults.push(format!("{place}: {} bytes, not {most}", image.len()));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_drawing_is_in_a_page() {
    let (drawings, _) = all();
    let named: BTreeSet<PathBuf> = drawings.iter().map(|d| top().join(&d.path)).collect();
    let files = std::fs::read_dir(top().join(FOLDER)).expect("the drawings");
    for file in files {
        let path = file.expect("an entry").path();
        assert!(named.contains(&path), "{} is in no page", path.display());
    }
}

#[test]
fn an_image_is_found_in_both_forms() {
    assert_eq!(image_of("![a b](c/d.svg)"), Some(("c/d.svg", "a b")));
    let live = "<object data=\"d.svg\" type=\"image/svg+xml\"><img src=\"d.svg\" alt=\"a &lt; b\"></object>";
    assert_eq!(image_of(live), Some(("d.svg", "a &lt; b")));
    assert_eq!(image_of("no image"), None);

    let page = format!("text\n{COMMENT}--embed x case.s -->\n{live}\n");
    let found = Drawing::of("docs/page.md", &page, 1).expect("a drawing");
    assert_eq!(found.command, "--embed x case.s");
    assert_eq!(found.path, Path::new("docs/d.svg"));
    assert_eq!(found.alternative, "a < b");
    // One of a single state is not interactive.
    let page = page.replace("--embed", "--svg");
    assert!(Drawing::of("docs/page.md", &page, 1).is_err());
}
