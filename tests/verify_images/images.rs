//! Findings belong to the image that was mapped at the time.

use crate::verify_images::folder::{Folder, is, text};
use unwind_sim_judge::verify::{Check, groups};
use unwind_sim_unwind::reason::Code;

#[test]
fn findings_before_an_execve_belong_to_the_program_before() {
    let folder = Folder::new();

    // The wrong function is called before `execve` (59).
    let first = "
        WRONG   of_first
        START
        call    of_first
        lea     path(%rip), %rdi
        xor     %esi, %esi
        xor     %edx, %edx
        mov     $59, %eax
        syscall
        ud2
        END
path:   .asciz  \"/second\"";
    folder.program("first", first);
    let second = |kind: &str| format!("{kind} of_second\nSTART\ncall of_second\nEXIT\nEND");
    folder.program("second", &second("RIGHT"));

    // What was found stays with the first program.
    let found = folder.found("first");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .all(|one| is(one, "of_first", "first", Code::WrongCfa))
    );

    // The same addresses and the same fault, but another image.
    folder.program("second", &second("WRONG"));
    let found = folder.found("first");
    assert_eq!(found.len(), 4, "{found:?}");
    for pair in found.chunks(2) {
        assert!(
            is(&pair[0], "of_first", "first", Code::WrongCfa),
            "{pair:?}"
        );
        assert!(
            is(&pair[1], "of_second", "second", Code::WrongCfa),
            "{pair:?}"
        );
        assert_eq!((pair[0].3, pair[0].4), (pair[1].3, pair[1].4));
    }

    // Programs that differ only in their tables have different build ids.
    folder.program("second", &second("BARE"));
    let run = folder.verify("first", "dwarf", true);
    let results = &run.results;
    let ids = results
        .findings
        .iter()
        .map(|f| results.places.build_id(f.place));
    let ids: std::collections::BTreeSet<_> = ids.collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids.iter().all(Option::is_some));
}

#[test]
fn findings_belong_to_the_library_that_was_mapped() {
    let folder = Folder::new();

    // Two libraries with a wrong row at the same address, one after the other, and a right one over
    // them.
    folder.library("one.so", "WRONG in_one");
    folder.library("two.so", "WRONG in_two");
    folder.library("three.so", "RIGHT in_three");
    folder.program(
        "maps",
        "
        START
        MAP     one
        CALL_IT
        UNMAP
        MAP     two                     # in its place
        CALL_IT
        MAP     three                   # over it
        CALL_IT
        MAP     one                     # and back
        CALL_IT
        UNMAP
        EXIT
        END
one:    .asciz  \"/one.so\"
two:    .asciz  \"/two.so\"
three:  .asciz  \"/three.so\"",
    );

    let found = folder.found("maps");
    assert_eq!(found.len(), 4, "{found:?}");

    // `one` was called twice, `two` once.
    for (pair, address) in found.chunks(2).zip([0x70_1001, 0x70_1002]) {
        assert!(is(&pair[0], "in_one", "one.so", Code::WrongCfa), "{pair:?}");
        assert!(is(&pair[1], "in_two", "two.so", Code::WrongCfa), "{pair:?}");
        let counts = [pair[0].4, pair[1].4];
        assert_eq!((pair[0].3, pair[1].3, counts), (address, address, [2, 1]));
    }

    // Names and listings are available though nothing is mapped at the end.
    let text = text(&folder.verify("maps", "dwarf", true));
    assert!(
        text.contains("at in_two+0x1 and at 1 more address"),
        "{text}"
    );
    assert!(text.contains("> "), "{text}");
}

#[test]
fn generated_code_is_another_each_time_it_is_mapped() {
    let folder = Folder::new();
    folder.library("rows.so", "RIGHT in_rows");

    // push %rbx; nop; pop %rbx; ret
    let make = "
        movl    $0xc35b9053, 0x701000";

    // PROT_READ is 1, PROT_WRITE 2, PROT_EXEC 4; call 10 is `mprotect`.
    folder.program(
        "jit",
        &format!(
            "
        START
        MAP_NOTHING 7
        {make}
        CALL_IT
        # Written and executed in turns it stays the same memory.
        .irp    prot, 3, 5
        mov     $0x700000, %edi
        mov     $0x2000, %esi
        mov     $\\prot, %edx
        mov     $10, %eax
        syscall
        .endr
        CALL_IT
        MAP     rows                    # code with rows, at the same address
        CALL_IT
        MAP_NOTHING 7
        {make}
        CALL_IT
        EXIT
        END
rows:   .asciz  \"/rows.so\""
        ),
    );

    // Correct code in between; what has no table is no finding.
    assert_eq!(folder.found("jit"), []);

    // Four instructions, three times, in two mappings of the memory.
    let run = folder.verify("jit", "dwarf", true);
    let generated = run.results.generated.iter();
    let counts = generated.map(|f| (f.instructions, f.addresses));
    let sum = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(sum, (12, 8), "{:?}", run.results.generated);
}

#[test]
fn what_is_linked_into_several_images_is_one_cause() {
    let folder = Folder::new();
    // `BARE` is a function without a row; each image has its own copy of it.
    folder.library("one.so", "BARE start_file\nRIGHT other");
    folder.library("two.so", "BARE start_file\nRIGHT another");
    folder.program(
        "maps",
        "
        BARE    start_file
        START
        call    start_file
        MAP     one
        CALL_IT
        MAP     two
        CALL_IT
        EXIT
        END
one:    .asciz  \"/one.so\"
two:    .asciz  \"/two.so\"",
    );

    let run = folder.verify("maps", "dwarf", true);
    let all = groups::groups(&run.results);
    let missing = all.iter().filter(|g| g.code == Code::NoRowForExecuted);

    // The same code at three addresses.
    let by_instruction: Vec<_> = missing.filter(|g| g.check == Check::Instruction).collect();
    // One cause, which a reader has to fix once, not three.
    assert_eq!(by_instruction.len(), 1, "{}", text(&run));
    assert_eq!(by_instruction[0].images, ["maps", "one.so", "two.so"]);
    // Four executed instructions in each of the three images.
    assert_eq!(by_instruction[0].count, 12);
}
