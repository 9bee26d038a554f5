//! A register as lanes of integers, and functions of registers built from functions of lanes.
//!
//! The loops are separate functions on memory: compilers vectorize those, but not shifts and ors of
//! a `u128`.

/// The bytes of a register, lowest first.
pub(in crate::isa) type Bytes = [u8; 16];

/// An integer lane of a register.
pub(in crate::isa) trait Lane: Copy + Ord {
    /// Number of lanes in a register.
    const COUNT: usize;
    const ZERO: Self;
    const ONES: Self;

    fn get<const SIZE: usize>(bytes: &[u8; SIZE], number: usize) -> Self;
    fn put(self, bytes: &mut Bytes, number: usize);
}

macro_rules! lane {
    ($($integer:ty)*) => {$(
        impl Lane for $integer {
            const COUNT: usize = 16 / size_of::<$integer>();
            const ZERO: Self = 0;
            const ONES: Self = !0;

            #[inline(always)]
            fn get<const SIZE: usize>(bytes: &[u8; SIZE], number: usize) -> Self {
                const WIDTH: usize = size_of::<$integer>();
                let mut lane = [0; WIDTH];
                lane.copy_from_slice(&bytes[number * WIDTH..(number + 1) * WIDTH]);
                <$integer>::from_le_bytes(lane)
            }

            #[inline(always)]
            fn put(self, bytes: &mut Bytes, number: usize) {
                const WIDTH: usize = size_of::<$integer>();
                bytes[number * WIDTH..(number + 1) * WIDTH].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
lane!(u8 u16 u32 u64 i8 i16 i32 i64);

/// Turns a function of two registers in memory and the immediate into a function of values.
#[inline(always)]
pub(in crate::isa) fn in_memory(
    function: impl Fn(&Bytes, &Bytes, u8, &mut Bytes),
) -> impl Fn(u128, u128, u8) -> u128 {
    move |a, b, imm| {
        let mut result = [0; 16];
        apart(
            &function,
            &a.to_le_bytes(),
            &b.to_le_bytes(),
            imm,
            &mut result,
        );
        u128::from_le_bytes(result)
    }
}

#[inline(never)]
fn apart<F: Fn(&Bytes, &Bytes, u8, &mut Bytes)>(
    function: &F,
    a: &Bytes,
    b: &Bytes,
    imm: u8,
    result: &mut Bytes,
) {
    function(a, b, imm, result);
}

/// Applies a function to each pair of lanes.
#[inline(always)]
pub(in crate::isa) fn zip<T: Lane>(
    function: impl Fn(T, T) -> T,
) -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(move |a, b, _, result| {
        for i in 0..T::COUNT {
            function(T::get(a, i), T::get(b, i)).put(result, i);
        }
    })
}

/// All ones in the lanes where a relation holds, otherwise zero.
#[inline(always)]
pub(in crate::isa) fn compare<T: Lane>(
    relation: impl Fn(&T, &T) -> bool,
) -> impl Fn(u128, u128, u8) -> u128 {
    zip(move |a, b| if relation(&a, &b) { T::ONES } else { T::ZERO })
}

/// Applies a function to neighbouring lanes: those of the first operand give the lower half.
#[inline(always)]
pub(super) fn horizontal<T: Lane>(function: impl Fn(T, T) -> T) -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(move |a, b, _, result| {
        let half = T::COUNT / 2;
        for i in 0..half {
            function(T::get(a, 2 * i), T::get(a, 2 * i + 1)).put(result, i);
            function(T::get(b, 2 * i), T::get(b, 2 * i + 1)).put(result, half + i);
        }
    })
}

/// Selects each lane from both operands: the function maps the lane's number and the immediate to
/// the number of the source lane; the lanes of the second operand follow those of the first.
#[inline(always)]
pub(in crate::isa) fn pick<T: Lane>(
    number: impl Fn(usize, usize) -> usize,
) -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(move |a, b, imm, result| {
        let mut both = [0; 32];
        both[..16].copy_from_slice(a);
        both[16..].copy_from_slice(b);
        for i in 0..T::COUNT {
            let number = number(i, usize::from(imm)) & (2 * T::COUNT - 1);
            T::get(&both, number).put(result, i);
        }
    })
}

/// All lanes of both operands, narrowed to half their size.
#[inline(always)]
pub(super) fn narrow<T: Lane, U: Lane>(
    function: impl Fn(T) -> U,
) -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(move |a, b, _, result| {
        for i in 0..T::COUNT {
            function(T::get(a, i)).put(result, i);
            function(T::get(b, i)).put(result, T::COUNT + i);
        }
    })
}

/// The lowest lanes of the second operand, widened.
#[inline(always)]
pub(super) fn widen<T: Lane, U: Lane + From<T>>() -> impl Fn(u128, u128, u8) -> u128 {
    in_memory(|_, b, _, result| {
        for i in 0..U::COUNT {
            U::from(T::get(b, i)).put(result, i);
        }
    })
}
