//! Rounds and message schedules of SHA-1 and SHA-256, four words to a register.
//!
//! Source: FIPS 180-4; Intel SDM volume 2, SHA1RNDS4 and related instructions.

/// The words of a register, the lowest first.
fn words(a: u128) -> [u32; 4] {
    [0, 32, 64, 96].map(|shift| (a >> shift) as u32)
}

fn register(words: [u32; 4]) -> u128 {
    let words = words.into_iter().rev();
    words.fold(0, |all, word| all << 32 | u128::from(word))
}

fn choose(x: u32, y: u32, z: u32) -> u32 {
    x & y ^ !x & z
}

fn majority(x: u32, y: u32, z: u32) -> u32 {
    x & y ^ x & z ^ y & z
}

fn parity(x: u32, y: u32, z: u32) -> u32 {
    x ^ y ^ z
}

/// Four rounds of SHA-1: A to D in `state`, A highest; the message with E added to its first word.
pub(super) fn rounds1(state: u128, message: u128, rounds: u8) -> u128 {
    let (function, constant): (fn(u32, u32, u32) -> u32, u32) = match rounds & 3 {
        0 => (choose, 0x5a82_7999),
        1 => (parity, 0x6ed9_eba1),
        2 => (majority, 0x8f1b_bcdc),
        _ => (parity, 0xca62_c1d6),
    };
    let [mut d, mut c, mut b, mut a] = words(state);
    let mut e = 0_u32;
    for word in words(message).into_iter().rev() {
        let next = function(b, c, d)
            .wrapping_add(a.rotate_left(5))
            .wrapping_add(word)
            .wrapping_add(e)
            .wrapping_add(constant);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    register([d, c, b, a])
}

/// E after four rounds, added to the message.
pub(super) fn next_e(state: u128, message: u128) -> u128 {
    let [.., a] = words(state);
    let [w3, w2, w1, w0] = words(message);
    register([w3, w2, w1, w0.wrapping_add(a.rotate_left(30))])
}

pub(super) fn message1_1(a: u128, b: u128) -> u128 {
    let ([w3, w2, w1, w0], [.., w5, w4]) = (words(a), words(b));
    register([w5 ^ w3, w4 ^ w2, w3 ^ w1, w2 ^ w0])
}

pub(super) fn message1_2(a: u128, b: u128) -> u128 {
    let ([a0, a1, a2, a3], [w15, w14, w13, _]) = (words(a), words(b));
    let w16 = (a3 ^ w13).rotate_left(1);
    let w17 = (a2 ^ w14).rotate_left(1);
    let w18 = (a1 ^ w15).rotate_left(1);
    let w19 = (a0 ^ w16).rotate_left(1);
    register([w19, w18, w17, w16])
}

/// Two rounds of SHA-256: C, D, G and H in `cdgh`, C highest; A, B, E and F in `abef`; the sums of
/// words and constants in the lower half of `message`.
pub(super) fn rounds256(cdgh: u128, abef: u128, message: u128) -> u128 {
    let ([mut h, mut g, mut d, mut c], [mut f, mut e, mut b, mut a]) = (words(cdgh), words(abef));
    let [first, second, ..] = words(message);
    for word in [first, second] {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t = choose(e, f, g)
            .wrapping_add(s1)
            .wrapping_add(word)
            .wrapping_add(h);
        let next = t.wrapping_add(majority(a, b, c)).wrapping_add(s0);
        (h, g, f, e) = (g, f, e, t.wrapping_add(d));
        (d, c, b, a) = (c, b, a, next);
    }
    register([f, e, b, a])
}

pub(super) fn message256_1(a: u128, b: u128) -> u128 {
    let ([w0, w1, w2, w3], [w4, ..]) = (words(a), words(b));
    let s0 = |w: u32| w.rotate_right(7) ^ w.rotate_right(18) ^ w >> 3;
    register([
        w0.wrapping_add(s0(w1)),
        w1.wrapping_add(s0(w2)),
        w2.wrapping_add(s0(w3)),
        w3.wrapping_add(s0(w4)),
    ])
}

pub(super) fn message256_2(a: u128, b: u128) -> u128 {
    let ([a0, a1, a2, a3], [_, _, w14, w15]) = (words(a), words(b));
    let s1 = |w: u32| w.rotate_right(17) ^ w.rotate_right(19) ^ w >> 10;
    let w16 = a0.wrapping_add(s1(w14));
    let w17 = a1.wrapping_add(s1(w15));
    let w18 = a2.wrapping_add(s1(w16));
    let w19 = a3.wrapping_add(s1(w17));
    register([w16, w17, w18, w19])
}
