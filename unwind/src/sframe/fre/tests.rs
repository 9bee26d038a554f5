//! Data words of each size, signed and unsigned.

use super::*;

#[test]
fn words_are_as_wide_as_the_info_byte_says() {
    let words = [0x81, 0x82, 0x83, 0x84, 0x05, 0x06, 0x07, 0x08];
    let cases: [(u8, usize, [i32; 2], [u32; 2]); 3] = [
        (0, 1, [-0x7f, -0x7e], [0x81, 0x82]),
        (1, 2, [-0x7d7f, -0x7b7d], [0x8281, 0x8483]),
        (
            2,
            4,
            [0x8483_8281_u32.cast_signed(), 0x0807_0605],
            [0x8483_8281, 0x0807_0605],
        ),
    ];

    for (size, len, signed, unsigned) in cases {
        // The size is in bits 5 and 6, the count in bits 1 to 4.
        let info = size << 5 | 2 << 1;
        let fre = Fre::new(7, 3, info, &words[..2 * len]).expect("two words");
        assert_eq!((fre.offset, fre.start, fre.count()), (7, 3, 2));
        assert_eq!([0, 1].map(|i| fre.signed(i)), signed.map(Some));
        assert_eq!([0, 1].map(|i| fre.unsigned(i)), unsigned.map(Some));
        assert_eq!((fre.signed(2), fre.unsigned(2)), (None, None));

        // Exactly as many bytes as the words take.
        assert!(Fre::new(7, 3, info, &words[..2 * len - 1]).is_none());
        assert!(Fre::new(7, 3, info, &[0; 9][..2 * len + 1]).is_none());
    }

    assert!(Fre::new(0, 0, 3 << 5, &[]).is_none());
}

#[test]
fn the_info_byte_names_the_base_and_up_to_fifteen_words() {
    for (info, base_is_sp, count) in [
        (0, false, 0),
        (1, true, 0),
        (0x1e, false, 15),
        (0x9f, true, 15),
    ] {
        let words = [0; 15];
        let fre = Fre::new(0, 0, info, &words[..count]).expect("a row");
        assert_eq!((fre.base_is_sp(), fre.count()), (base_is_sp, count));
    }
}
