//! Tests of which instructions are known when a block starts again.

use super::*;

fn block(number: u32, generation: u64) -> Option<BlockId> {
    Some(BlockId { number, generation })
}

/// Marks an instruction as looked up, with these claims.
fn mark(code: &mut Code, index: u32, claims: u32) {
    code.known(index)
        .expect("an instruction of the block")
        .claims = claims;
}

fn marks(code: &mut Code, count: u32) -> Vec<u32> {
    let claims = |index| code.known(index).map_or(7777, |known| known.claims);
    (0..count).map(claims).collect()
}

#[test]
fn a_block_that_begins_again_is_known() {
    let mut code = Code::new();
    code.enter(block(0, 0), 2);
    assert_eq!(marks(&mut code, 3), [NONE, NONE, 7777]);
    mark(&mut code, 1, 10);
    code.enter(block(5, 0), 3);
    mark(&mut code, 0, 20);
    for _ in 0..2 {
        code.enter(block(0, 0), 2);
        assert_eq!(marks(&mut code, 2), [NONE, 10]);
        code.enter(block(5, 0), 3);
        assert_eq!(marks(&mut code, 3), [20, NONE, NONE]);
    }
    assert_eq!((code.met.instructions.len(), code.met.blocks.len()), (5, 6));
    // In another generation the numbers belong to other blocks.
    code.enter(block(5, 1), 3);
    assert_eq!(marks(&mut code, 3), [NONE; 3]);
    code.enter(block(0, 1), 2);
    assert_eq!(marks(&mut code, 2), [NONE; 2]);
    code.enter(block(0, 0), 2);
    assert_eq!(marks(&mut code, 2), [NONE; 2]);
}

#[test]
fn an_instruction_by_itself_is_known_until_the_next_begins() {
    let mut code = Code::new();
    code.enter(block(0, 0), 2);
    mark(&mut code, 0, 10);
    for _ in 0..3 {
        code.enter(None, 1);
        assert_eq!(marks(&mut code, 1), [NONE]);
        mark(&mut code, 0, 30);
        assert_eq!(code.met.instructions.len(), 3);
    }
    code.enter(block(0, 0), 2);
    assert_eq!(marks(&mut code, 2), [10, NONE]);
    assert_eq!(code.met.instructions.len(), 2);
}

#[test]
fn what_is_forgotten_leaves_room_for_the_block_that_is_executed() {
    let mut code = Code::new();
    code.enter(block(0, 0), 4);
    code.enter(block(1, 0), 3);
    for index in 0..3 {
        mark(&mut code, index, 10);
    }
    code.clear();
    assert_eq!(marks(&mut code, 3), [NONE; 3]);
    assert_eq!(code.met.instructions.len(), 3);
    // The block is a new one when it starts again.
    mark(&mut code, 0, 20);
    code.enter(block(1, 0), 3);
    assert_eq!(marks(&mut code, 3), [NONE; 3]);
}

#[test]
fn what_is_known_is_measured() {
    let mut code = Code::new();
    let nothing = code.memory();
    assert_eq!((nothing.claims, nothing.met, nothing.rows), (0, 0, 0));
    code.enter(block(0, 0), 100);
    let known = code.memory().known - nothing.known;
    // The instructions, and room for eight block numbers.
    assert_eq!(known, 100 * 16 + 8 * 4);
    for at in 0..100 {
        code.met.returns_by_address.insert(at, 0);
        code.addresses.insert(0, at * 0x1000);
        code.claims.number(Claim::Slow);
        code.claims.number(Claim::Missing);
    }
    let all = code.memory();
    let entry = size_of::<(u64, u32)>();
    let more = all.known - nothing.known - known;
    assert!((100 * entry..400 * entry).contains(&more), "{more}");
    assert_eq!(all.met, code.addresses.bytes());
    assert_eq!(all.claims, code.claims.bytes());
    let set = Set {
        claims: [0; UNWINDERS_MAX],
        part_of: [None; UNWINDERS_MAX],
        depends: 0,
        has_slow: false,
    };
    code.sets.number(set);
    assert_eq!(
        code.memory().claims,
        code.claims.bytes() + code.sets.bytes()
    );
}

#[test]
fn a_call_stores_nothing_but_its_return_address() {
    let known = |class| Known {
        class,
        more: 5,
        ..Known::NOTHING
    };
    let call = known(Insn::Call {
        len: 5,
        indirect: false,
    });
    assert_eq!((call.stores(), call.behind()), (NO_STORES, 5));
    let other = known(Insn::Other);
    assert_eq!((other.stores(), other.behind()), (5, NONE));
}
