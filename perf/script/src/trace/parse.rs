//! Parses a `print fmt` into a tree.

use super::Field;
use super::lex::{Token, tokens};

/// Maximum nesting depth of expressions.
const DEPTH_MAX: usize = 200;
/// Maximum number of nodes of one format, including entries of flag and symbol tables.
const NODES_MAX: usize = 1 << 14;

/// A parsed `print fmt`.
#[derive(Debug)]
pub(super) struct Print {
    pub(super) text: Vec<u8>,
    pub(super) arguments: Vec<Expr>,
}

/// A number and its name.
pub(super) type ValueName = (u64, Vec<u8>);

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Number(u64),
    Text(Vec<u8>),
    /// A type, or a kernel constant whose value is unknown.
    Name(Vec<u8>),
    /// The field with this index.
    Field(usize),
    /// An element of an array.
    Index(Box<Expr>, Box<Expr>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A cast to a type.
    Cast(Type, Box<Expr>),
    Flags(Box<Expr>, Vec<u8>, Vec<ValueName>),
    Symbolic(Box<Expr>, Vec<ValueName>),
    /// The text in the field with this index.
    Str(usize),
    /// The data that the field with this index locates.
    Dynamic(usize),
    /// The length of the data of the field with this index.
    DynamicLen(usize),
    /// The data of the field with this index as a mask: as bit numbers, or in hexadecimal.
    Mask(usize, bool),
    /// Data, count and size: an array of `count` numbers of `size` bytes each.
    Array(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Data and length: bytes in hexadecimal, with a separator.
    Hex(Box<Expr>, Box<Expr>, &'static str),
}

/// The target type of a cast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Type {
    /// Size of the type in bytes.
    pub(super) size: usize,
    /// Size of the type it points to, if it is a pointer.
    pub(super) target: usize,
}

impl Type {
    fn of(name: &[u8]) -> Type {
        let target = name.strip_suffix(b" *");
        let size = |name: &[u8]| size_of_type(name).unwrap_or(8);
        Type {
            size: if target.is_some() { 8 } else { size(name) },
            target: target.map_or(8, size),
        }
    }
}

/// The size in bytes of a type by its name; `None` if it is not a basic type.
pub(super) fn size_of_type(name: &[u8]) -> Option<usize> {
    match name.strip_prefix(b"unsigned ").unwrap_or(name) {
        b"u8" | b"s8" | b"__u8" | b"__s8" | b"char" | b"bool" => Some(1),
        b"u16" | b"s16" | b"__u16" | b"__s16" | b"short" => Some(2),
        b"u32" | b"s32" | b"__u32" | b"__s32" | b"int" | b"unsigned" => Some(4),
        b"u64" | b"s64" | b"__u64" | b"__s64" | b"long" | b"long long" | b"size_t" => Some(8),
        _ => None,
    }
}

/// Parses a `print fmt`; `None` if it contains something unknown.
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
        arguments.push(parser.whole()?);
    }
    Some(Print {
        text: text.clone(),
        arguments,
    })
}

/// The rank of an operator: higher ones bind more loosely. Unary use does not matter here.
fn rank(operator: &str) -> u32 {
    match operator {
        "[" => 0,
        "~" | "!" => 4,
        "*" | "/" | "%" => 6,
        "+" | "-" => 7,
        "<<" | ">>" => 8,
        "<" | ">" | "<=" | ">=" => 9,
        "==" | "!=" => 10,
        "&" => 11,
        "^" => 12,
        "|" => 13,
        "&&" => 14,
        "||" => 15,
        _ => 16,
    }
}

/// Operators that may follow an operand.
const OPERATORS: [&str; 20] = [
    "[", "?", "*", "/", "%", "+", "-", "<<", ">>", "<=", ">=", "<", ">", "==", "!=", "&&", "||",
    "&", "^", "|",
];

impl Expr {
    /// The rank of its operator, as the right operand of another, in parentheses or not.
    fn rank(&self) -> Option<u32> {
        match self {
            Expr::Unary(operator, _) | Expr::Binary(operator, ..) => Some(rank(operator)),
            Expr::Choice(..) => Some(rank("?")),
            _ => None,
        }
    }
}

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

    /// The next token, if it is an operator.
    fn operator(&self) -> Option<&'static str> {
        match self.rest.first()? {
            Token::Mark(mark) if OPERATORS.contains(mark) => Some(mark),
            _ => None,
        }
    }

    /// Parses an operand and all operators that follow.
    fn whole(&mut self) -> Option<Expr> {
        let first = self.operand()?;
        self.go_on(first)
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        self.nodes += 1;
        (self.depth <= DEPTH_MAX && self.nodes <= NODES_MAX).then_some(())
    }

    /// Parses the operators after `left` like libtraceevent's `process_op`, which differs from C:
    /// operators of equal rank associate to the right, what follows a tighter operator stays with
    /// it, and parentheses around a more loosely binding right operand have no effect.
    fn go_on(&mut self, left: Expr) -> Option<Expr> {
        let Some(operator) = self.operator() else {
            return Some(left);
        };

        // The text comes from a recording: a bound on its depth is one on our own stack.
        self.deeper()?;
        self.eat(operator);

        let found = match operator {
            "?" => {
                let yes = self.whole()?;
                self.expect(":")?;
                let no = self.whole()?;
                Expr::Choice(left.into(), yes.into(), no.into())
            }
            "[" => {
                let index = self.operand()?;
                self.expect("]")?;
                self.go_on(Expr::Index(left.into(), index.into()))?
            }
            // A pointer type in a cast: `(struct x *)`.
            "*" if self.rest.first() == Some(&Token::Mark(")")) => match left {
                Expr::Name(name) => Expr::Name([&name[..], b" *"].concat()),
                _ => return None,
            },
            _ => {
                let right = self.operand()?;
                self.join(operator, left, right)?
            }
        };

        // Only the depth of what is open counts.
        self.depth -= 1;
        Some(found)
    }

    /// Builds `left operator right`, and parses what follows.
    fn join(&mut self, operator: &'static str, left: Expr, right: Expr) -> Option<Expr> {
        let binary = |left: Expr, right: Expr| Expr::Binary(operator, left.into(), right.into());

        // Whether a looser operator than `top` follows, and whether any does.
        let follows = |parser: &Self, top: u32| {
            let next = parser.operator().map(rank);
            (next.is_some_and(|next| next > top), next.is_some())
        };

        let is_looser = right.rank().is_some_and(|other| rank(operator) < other);
        if !is_looser {
            return match follows(self, rank(operator)) {
                (false, true) => {
                    let right = self.go_on(right)?;
                    Some(binary(left, right))
                }
                _ => self.go_on(binary(left, right)),
            };
        }

        // The looser operator becomes the root.
        let (top, inner, rebuild): (u32, Expr, Box<dyn FnOnce(Expr) -> Expr>) = match right {
            Expr::Binary(other, a, b) => (
                rank(other),
                binary(left, *a),
                Box::new(move |inner: Expr| Expr::Binary(other, inner.into(), b)),
            ),
            Expr::Choice(a, yes, no) => (
                0,
                binary(left, *a),
                Box::new(move |inner: Expr| Expr::Choice(inner.into(), yes, no)),
            ),
            Expr::Unary(other, a) => (
                0,
                binary(left, Expr::Number(0)),
                Box::new(move |inner: Expr| Expr::Binary(other, inner.into(), a)),
            ),
            _ => return None,
        };

        // The rest belongs to the inner expression, unless its operator is looser than the new
        // root.
        match follows(self, top) {
            (false, true) => {
                let inner = self.go_on(inner)?;
                Some(rebuild(inner))
            }
            _ => self.go_on(rebuild(inner)),
        }
    }

    fn operand(&mut self) -> Option<Expr> {
        // Every way into an operand deepens the recursion, so it is counted here.
        self.deeper()?;

        let signs = ["!", "~", "-", "+"];
        let sign = signs.into_iter().find(|mark| self.eat(mark));

        let found = if let Some(sign) = sign {
            let mut of = self.operand()?;
            // An index binds tighter than a sign.
            if self.operator() == Some("[") {
                of = self.go_on(of)?;
            }
            self.go_on(Expr::Unary(sign, of.into()))?
        } else if self.eat("(") {
            let inner = self.whole()?;
            self.expect(")")?;

            // A type in parentheses is a name; whether it is a cast shows only in what follows.
            match (self.rest.first(), inner) {
                (
                    Some(Token::Mark("(") | Token::Name(_) | Token::Number(_) | Token::Text(_)),
                    of,
                ) => {
                    let Expr::Name(name) = of else {
                        return None;
                    };
                    Expr::Cast(Type::of(&name), self.operand()?.into())
                }
                (_, inner) => inner,
            }
        } else {
            match self.rest {
                [Token::Number(number), rest @ ..] => {
                    self.rest = rest;
                    Expr::Number(*number)
                }
                [Token::Text(_), ..] => self.text().map(Expr::Text)?,
                _ => {
                    let name = self.name()?;
                    self.named(name)?
                }
            }
        };

        self.depth -= 1;
        Some(found)
    }

    /// Parses an expression that starts with a name.
    fn named(&mut self, mut name: Vec<u8>) -> Option<Expr> {
        // A field of the event's own record.
        if name == b"REC" {
            self.expect("->")?;
            return self.field().map(Expr::Field);
        }

        if !self.eat("(") {
            // `unsigned int`
            while let Some(next) = self.name() {
                name.push(b' ');
                name.extend(next);
            }
            return Some(Expr::Name(name));
        }

        // The helpers that a `print fmt` may call.
        let found = match &name[..] {
            b"__print_flags" | b"__print_flags_u64" => {
                let value = self.whole()?;
                self.expect(",")?;
                let between = self.text()?;
                Expr::Flags(value.into(), between, self.table()?)
            }
            b"__print_symbolic" | b"__print_symbolic_u64" => {
                let value = self.whole()?;
                Expr::Symbolic(value.into(), self.table()?)
            }
            b"__get_str" | b"__get_rel_str" => Expr::Str(self.field()?),
            b"__get_dynamic_array_len" | b"__get_rel_dynamic_array_len" => {
                Expr::DynamicLen(self.field()?)
            }
            b"__get_dynamic_array" | b"__get_rel_dynamic_array" => Expr::Dynamic(self.field()?),
            b"__get_bitmask" | b"__get_rel_bitmask" => Expr::Mask(self.field()?, false),
            b"__get_cpumask" | b"__get_rel_cpumask" => Expr::Mask(self.field()?, true),
            b"__builtin_expect" => {
                // The second operand only says which value is likely.
                let condition = self.operand()?;
                self.expect(",")?;
                self.operand()?;
                condition
            }
            b"__print_array" => {
                let data = self.whole()?;
                self.expect(",")?;
                let count = self.whole()?;
                self.expect(",")?;
                Expr::Array(data.into(), count.into(), self.whole()?.into())
            }
            b"sizeof" => match self.whole()? {
                Expr::Name(name) => Expr::Number(Type::of(&name).size as u64),
                Expr::Field(number) => Expr::Number(self.fields.get(number)?.size as u64),
                _ => return None,
            },
            b"__print_hex" | b"__print_hex_str" => {
                let between = if name.ends_with(b"str") { "" } else { " " };
                let bytes = self.whole()?;
                self.expect(",")?;
                Expr::Hex(bytes.into(), self.whole()?.into(), between)
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
    fn table(&mut self) -> Option<Vec<ValueName>> {
        let mut table = Vec::new();
        while self.eat(",") {
            self.nodes += 1;
            self.expect("{")?;
            let value = self.whole()?;
            self.expect(",")?;
            let name = self.whole()?;
            self.eat(",");
            self.expect("}")?;
            // The last entry's name may be a null pointer.
            if let Expr::Text(name) = name {
                table.push((super::eval::constant(&value)?, name));
            }
        }
        Some(table)
    }
}
