//! The settings of a terminal: `struct ktermios` and its forms for programs.
//!
//! Source: Linux 6.12 `include/uapi/asm-generic/termbits.h`, `drivers/tty/tty_ioctl.c`,
//! `drivers/tty/tty_baudrate.c`.

/// Flags of `c_iflag`.
pub(in crate::linux) mod iflag {
    pub(in crate::linux) const PARMRK: u32 = 0o10;
    pub(in crate::linux) const ISTRIP: u32 = 0o40;
    pub(in crate::linux) const INLCR: u32 = 0o100;
    pub(in crate::linux) const IGNCR: u32 = 0o200;
    pub(in crate::linux) const ICRNL: u32 = 0o400;
    pub(in crate::linux) const IUCLC: u32 = 0o1000;
    pub(in crate::linux) const IXON: u32 = 0o2000;
    pub(in crate::linux) const IXANY: u32 = 0o4000;
    pub(in crate::linux) const IUTF8: u32 = 0o40000;
}

/// Flags of `c_oflag`.
pub(in crate::linux) mod oflag {
    pub(in crate::linux) const OPOST: u32 = 1;
    pub(in crate::linux) const OLCUC: u32 = 2;
    pub(in crate::linux) const ONLCR: u32 = 4;
    pub(in crate::linux) const OCRNL: u32 = 0o10;
    pub(in crate::linux) const ONOCR: u32 = 0o20;
    pub(in crate::linux) const ONLRET: u32 = 0o40;
    /// The tabulator delay, and its value that writes spaces.
    pub(in crate::linux) const XTABS: u32 = 0o14000;
}

/// Flags of `c_lflag`.
pub(in crate::linux) mod lflag {
    pub(in crate::linux) const ISIG: u32 = 1;
    pub(in crate::linux) const ICANON: u32 = 2;
    pub(in crate::linux) const ECHO: u32 = 0o10;
    pub(in crate::linux) const ECHOE: u32 = 0o20;
    pub(in crate::linux) const ECHOK: u32 = 0o40;
    pub(in crate::linux) const ECHONL: u32 = 0o100;
    pub(in crate::linux) const NOFLSH: u32 = 0o200;
    pub(in crate::linux) const TOSTOP: u32 = 0o400;
    pub(in crate::linux) const ECHOCTL: u32 = 0o1000;
    pub(in crate::linux) const ECHOPRT: u32 = 0o2000;
    pub(in crate::linux) const ECHOKE: u32 = 0o4000;
    pub(in crate::linux) const IEXTEN: u32 = 0o100_000;
    pub(in crate::linux) const EXTPROC: u32 = 0o200_000;
}

/// Indices of `c_cc`.
pub(in crate::linux) mod cc {
    pub(in crate::linux) const INTR: usize = 0;
    pub(in crate::linux) const QUIT: usize = 1;
    pub(in crate::linux) const ERASE: usize = 2;
    pub(in crate::linux) const KILL: usize = 3;
    pub(in crate::linux) const EOF: usize = 4;
    pub(in crate::linux) const TIME: usize = 5;
    pub(in crate::linux) const MIN: usize = 6;
    pub(in crate::linux) const START: usize = 8;
    pub(in crate::linux) const STOP: usize = 9;
    pub(in crate::linux) const SUSP: usize = 10;
    pub(in crate::linux) const EOL: usize = 11;
    pub(in crate::linux) const REPRINT: usize = 12;
    pub(in crate::linux) const WERASE: usize = 14;
    pub(in crate::linux) const LNEXT: usize = 15;
    pub(in crate::linux) const EOL2: usize = 16;
}

/// A control character that is switched off (`__DISABLED_CHAR`).
pub(in crate::linux) const DISABLED: u8 = 0;

const CSIZE: u32 = 0o60;
const CS8: u32 = 0o60;
const CREAD: u32 = 0o200;
const PARENB: u32 = 0o400;
const ADDRB: u32 = 0o4_000_000_000;
const CBAUD: u32 = 0o10017;
const CBAUDEX: u32 = 0o10000;
/// The speed is a number of its own.
const BOTHER: u32 = 0o10000;
/// Where `c_cflag` has the speed of input.
const IBSHIFT: u32 = 16;

/// Speeds by their code, bits for each second.
const SPEEDS: [u32; 31] = [
    0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19_200, 38_400, 57_600,
    115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000,
    2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
];

/// Number of control characters.
const CHARACTERS: usize = 19;

/// Which structure a program passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Form {
    /// `struct termios`.
    Termios,
    /// `struct termios2`, with speeds.
    Termios2,
    /// `struct termio`, whose flags have 16 bits.
    Termio,
}

impl Form {
    /// Size, bytes.
    pub(in crate::linux) fn size(self) -> usize {
        match self {
            Form::Termios => 36,
            Form::Termios2 => 44,
            Form::Termio => 18,
        }
    }
}

/// The settings of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Termios {
    pub(in crate::linux) input: u32,
    pub(in crate::linux) output: u32,
    control: u32,
    pub(in crate::linux) local: u32,
    line: u8,
    pub(in crate::linux) characters: [u8; CHARACTERS],
    /// Of input and output, bits for each second.
    speeds: [u32; 2],
}

impl Default for Termios {
    /// `tty_std_termios`, as pseudo-terminals have it.
    fn default() -> Self {
        use lflag::{ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ICANON, IEXTEN, ISIG};
        const B38400: u32 = 15;
        Termios {
            input: iflag::ICRNL | iflag::IXON,
            output: oflag::OPOST | oflag::ONLCR,
            control: B38400 | CS8 | CREAD,
            local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            characters: [
                3, 0x1c, 0x7f, 0x15, 4, 0, 1, 0, 0x11, 0x13, 0x1a, 0, 0x12, 0xf, 0x17, 0x16, 0, 0,
                0,
            ],
            speeds: [38_400; 2],
        }
    }
}

impl Termios {
    /// Whether a flag of `c_iflag` is set.
    pub(in crate::linux) fn has_input(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    /// Whether a flag of `c_lflag` is set.
    pub(in crate::linux) fn has_local(&self, flag: u32) -> bool {
        self.local & flag != 0
    }

    /// Whether input is read by lines.
    pub(in crate::linux) fn by_lines(&self) -> bool {
        self.has_local(lflag::ICANON) && !self.has_local(lflag::EXTPROC)
    }

    /// Whether a byte is this control character, and that is not switched off.
    pub(in crate::linux) fn is(&self, byte: u8, index: usize) -> bool {
        byte != DISABLED && self.characters[index] == byte
    }

    /// Whether output is stopped and started by the usual characters.
    pub(in crate::linux) fn has_usual_flow(&self) -> bool {
        let [start, stop] = [cc::START, cc::STOP].map(|index| self.characters[index]);
        self.has_input(iflag::IXON) && (start, stop) == (0o21, 0o23)
    }

    /// `CLOCAL`.
    pub(in crate::linux) fn is_local(&self) -> bool {
        self.control & 0o4000 != 0
    }

    /// The structure for a program.
    pub(in crate::linux) fn bytes(&self, form: Form) -> Vec<u8> {
        let flags = [self.input, self.output, self.control, self.local];
        let mut bytes = match form {
            Form::Termio => flags
                .map(|flag| (flag as u16).to_le_bytes())
                .as_flattened()
                .to_vec(),
            _ => flags.map(u32::to_le_bytes).as_flattened().to_vec(),
        };
        bytes.push(self.line);
        match form {
            Form::Termio => bytes.extend(&self.characters[..8]),
            _ => bytes.extend(self.characters),
        }
        if form == Form::Termios2 {
            bytes.extend(self.speeds.map(u32::to_le_bytes).as_flattened());
        }
        bytes.resize(form.size(), 0);
        bytes
    }

    /// The settings of a program's structure; what that does not have stays as it is.
    pub(in crate::linux) fn with(&self, form: Form, bytes: &[u8]) -> Termios {
        let word = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let half = |from: usize| u32::from(bytes[from]) | u32::from(bytes[from + 1]) << 8;
        let mut new = *self;

        match form {
            Form::Termio => {
                // `struct termio` has only the lower half of each flag word.
                let low = |old: u32, from| old & 0xffff_0000 | half(from);
                new.input = low(self.input, 0);
                new.output = low(self.output, 2);
                new.control = low(self.control, 4);
                new.local = low(self.local, 6);
                new.line = bytes[8];
                // `NCC` is 8.
                new.characters[..8].copy_from_slice(&bytes[9..17]);
            }
            _ => {
                // `struct termios`: four flag words, the line discipline, 19 characters.
                (new.input, new.output) = (word(0), word(4));
                (new.control, new.local) = (word(8), word(12));
                new.line = bytes[16];
                new.characters.copy_from_slice(&bytes[17..36]);
            }
        }

        if form == Form::Termios2 {
            // `struct termios2` ends with both speeds.
            new.speeds = [word(36), word(40)];
        }

        new.speeds = [new.input_speed(), new.speed(new.control)];
        // What a pseudo-terminal cannot do otherwise (`pty_set_termios`).
        new.control = new.control & !(CSIZE | PARENB | ADDRB) | CS8 | CREAD;

        new
    }

    /// The speed that `c_cflag` stands for.
    fn speed(&self, control: u32) -> u32 {
        match control & CBAUD {
            BOTHER => self.speeds[1],
            code if code & CBAUDEX != 0 => {
                let index = (code & !CBAUDEX) as usize + 15;
                SPEEDS.get(index).copied().unwrap_or(0)
            }
            code => SPEEDS[code as usize],
        }
    }

    fn input_speed(&self) -> u32 {
        match self.control >> IBSHIFT & CBAUD {
            0 => self.speed(self.control),
            BOTHER => self.speeds[0],
            code => self.speed(code),
        }
    }
}
