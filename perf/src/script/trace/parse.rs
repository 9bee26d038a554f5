//! A `print fmt` as a tree.

use super::Field;
use super::lex::{Token, tokens};

/// Expressions nest no deeper.
const DEPTH_MAX: usize = 200;
/// Entries of all tables of flags and symbols of one format.
const NODES_MAX: usize = 1 << 14;

/// What to print.
#[derive(Debug)]
pub(super) struct Print {
    pub(super) text: Vec<u8>,
    pub(super) arguments: Vec<Expr>,
}

/// A number and its name.
pub(super) type Named = (u64, Vec<u8>);

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Number(u64),
    Text(Vec<u8>),
    /// The field of that number.
    Field(usize),
    /// An element of the field of that number.
    Index(usize, Box<Expr>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// To so many bytes, signed or not.
    Cast(usize, bool, Box<Expr>),
    Flags(Box<Expr>, Vec<u8>, Vec<Named>),
    Symbolic(Box<Expr>, Vec<Named>),
    /// The text of the field of that number.
    Str(usize),
    /// The length of the data of the field of that number.
    DynamicLen(usize),
    /// So many bytes of a field as hexadecimal numbers with something between them.
    Hex(Box<Expr>, Box<Expr>, &'static str),
}

/// Reads a `print fmt`; `None` if it has something that this does not know.
pub(super) fn print(source: &[u8], fields: &[Field]) -> Option<Print> {
    let tokens = tokens(source)?;
    let [Token::Text(text), rest @ ..] = tokens.as_slice() else {
        return None;
    };
    let mut parser = Parser {
        rest,
        fields,
        depth: 0,
        nodes: 0,
    };
    let mut arguments = Vec::new();
    while !parser.rest.is_empty() {
        parser.expect(",")?;
        arguments.push(parser.choice()?);
    }
    Some(Print {
        text: text.clone(),
        arguments,
    })
}

/// Binary operators by rank, the loosest first.
const RANKS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'t> {
    rest: &'t [Token],
    fields: &'t [Field],
    depth: usize,
    nodes: usize,
}

impl Parser<'_> {
    fn eat(&mut self, mark: &str) -> bool {
        match self.rest {
            [Token::Mark(found), rest @ ..] if *found == mark => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, mark: &str) -> Option<()> {
        self.eat(mark).then_some(())
    }

    fn name(&mut self) -> Option<Vec<u8>> {
        let [Token::Name(name), rest @ ..] = self.rest else {
            return None;
        };
        self.rest = rest;
        Some(name.clone())
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let [Token::Text(text), rest @ ..] = self.rest else {
            return None;
        };
        self.rest = rest;
        Some(text.clone())
    }

    fn choice(&mut self) -> Option<Expr> {
        self.depth += 1;
        self.nodes += 1;
        if self.depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return None;
        }
        let condition = self.binary(0)?;
        let found = if self.eat("?") {
            let yes = self.choice()?;
            self.expect(":")?;
            let no = self.choice()?;
            Expr::Choice(condition.into(), yes.into(), no.into())
        } else {
            condition
        };
        self.depth -= 1;
        Some(found)
    }

    fn binary(&mut self, rank: usize) -> Option<Expr> {
        let Some(operators) = RANKS.get(rank) else {
            return self.unary();
        };
        let mut left = self.binary(rank + 1)?;
        let mut length = 0;
        while let Some(operator) = operators.iter().copied().find(|mark| self.eat(mark)) {
            // A chain of operators is as deep as it is long.
            length += 1;
            if length > DEPTH_MAX {
                return None;
            }
            let right = self.binary(rank + 1)?;
            left = Expr::Binary(operator, left.into(), right.into());
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let operator = ["!", "~", "-", "+"].into_iter().find(|mark| self.eat(mark));
        let found = match operator {
            Some(operator) => Expr::Unary(operator, self.unary()?.into()),
            None => self.primary()?,
        };
        self.depth -= 1;
        Some(found)
    }

    fn primary(&mut self) -> Option<Expr> {
        if let Some((size, signed)) = self.cast() {
            let of = self.unary()?;
            return Some(Expr::Cast(size, signed, of.into()));
        }
        if self.eat("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Some(inner);
        }
        match self.rest {
            [Token::Number(number), rest @ ..] => {
                self.rest = rest;
                Some(Expr::Number(*number))
            }
            [Token::Text(_), ..] => self.text().map(Expr::Text),
            _ => {
                let name = self.name()?;
                self.named(&name)
            }
        }
    }

    /// What a name begins.
    fn named(&mut self, name: &[u8]) -> Option<Expr> {
        if name == b"REC" {
            self.expect("->")?;
            let field = self.field()?;
            if self.eat("[") {
                let index = self.choice()?;
                self.expect("]")?;
                return Some(Expr::Index(field, index.into()));
            }
            return Some(Expr::Field(field));
        }
        if !self.eat("(") {
            // Something of the kernel's own, such as vmemmap_base: nobody knows its value here.
            return Some(Expr::Number(0));
        }
        let found = match name {
            b"__print_flags" | b"__print_flags_u64" => {
                let value = self.choice()?;
                self.expect(",")?;
                let between = self.text()?;
                Expr::Flags(value.into(), between, self.table()?)
            }
            b"__print_symbolic" | b"__print_symbolic_u64" => {
                let value = self.choice()?;
                Expr::Symbolic(value.into(), self.table()?)
            }
            b"__get_str" | b"__get_rel_str" => Expr::Str(self.field()?),
            b"__get_dynamic_array" | b"__get_rel_dynamic_array" => Expr::Field(self.field()?),
            b"__get_dynamic_array_len" | b"__get_rel_dynamic_array_len" => {
                Expr::DynamicLen(self.field()?)
            }
            b"__print_hex" | b"__print_hex_str" => {
                let between = if name == b"__print_hex" { " " } else { "" };
                let bytes = self.choice()?;
                self.expect(",")?;
                Expr::Hex(bytes.into(), self.choice()?.into(), between)
            }
            _ => return None,
        };
        self.expect(")")?;
        Some(found)
    }

    fn field(&mut self) -> Option<usize> {
        let name = self.name()?;
        self.fields.iter().position(|field| field.name == name)
    }

    /// `, { 1, "one" }, { 2, "two" }`
    fn table(&mut self) -> Option<Vec<Named>> {
        let mut table = Vec::new();
        while self.eat(",") {
            self.nodes += 1;
            self.expect("{")?;
            let value = self.choice()?;
            self.expect(",")?;
            let name = self.choice()?;
            self.eat(",");
            self.expect("}")?;
            // The last entry's name may be a null pointer.
            if let Expr::Text(name) = name {
                table.push((super::eval::constant(&value), name));
            }
        }
        Some(table)
    }

    /// A type in parentheses before an operand: its bytes and whether it is signed.
    fn cast(&mut self) -> Option<(usize, bool)> {
        let [Token::Mark("("), inside @ ..] = self.rest else {
            return None;
        };
        let is_type = |token: &Token| match token {
            Token::Name(name) => name != b"REC" && !name.starts_with(b"__get"),
            Token::Mark(mark) => *mark == "*",
            _ => false,
        };
        let length = inside.iter().take_while(|token| is_type(token)).count();
        let (words, after) = inside.split_at(length);
        let [Token::Mark(")"), operand @ ..] = after else {
            return None;
        };
        let begins = match operand.first()? {
            Token::Mark(mark) => matches!(*mark, "(" | "~" | "!"),
            _ => true,
        };
        if words.is_empty() || !begins {
            return None;
        }
        let has = |wanted: &[u8]| {
            let mut names = words.iter();
            names.any(|token| matches!(token, Token::Name(name) if name == wanted))
        };
        self.rest = operand;
        if words.contains(&Token::Mark("*")) || has(b"long") || has(b"u64") || has(b"__u64") {
            return Some((8, has(b"long") && !has(b"unsigned")));
        }
        let size = match () {
            () if has(b"char") || has(b"u8") || has(b"__u8") || has(b"s8") => 1,
            () if has(b"short") || has(b"u16") || has(b"__u16") || has(b"s16") => 2,
            () if has(b"int")
                || has(b"u32")
                || has(b"__u32")
                || has(b"s32")
                || has(b"unsigned") =>
            {
                4
            }
            () => 8,
        };
        let signed = (has(b"int") || has(b"char") || has(b"short")) && !has(b"unsigned");
        Some((size, signed || has(b"s8") || has(b"s16") || has(b"s32")))
    }
}
