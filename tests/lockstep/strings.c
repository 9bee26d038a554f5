/* Calls the string functions of the C library with many sizes, alignments and distances to the end
 * of a page, and prints a hash of all results. The library chooses their implementation by cpuid.
 *
 * Usage: strings STEP. Every STEP-th combination is called. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <wchar.h>

enum { PAGE = 4096, ROOM = 2 * PAGE, LARGE = 700 };

static uint64_t hash = 0xcbf29ce484222325;

static void add(uint64_t value) { hash = (hash ^ value) * 0x100000001b3; }

static uint64_t state = 88172645463325252u;

static uint32_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

/* Two pages, with nothing mapped after them. */
static char *pages(void)
{
	char *at = mmap(0, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || munmap(at + ROOM, PAGE))
		exit(2);
	return at;
}

static char *one, *two;

/* Letters without zero; few different ones, so that searches find and comparisons go on. */
static void fill(char *to, size_t size)
{
	uint32_t bits = 0;

	for (size_t i = 0; i < size; i++, bits >>= 3) {
		if (i % 10 == 0)
			bits = next();
		to[i] = "abcdAB\x80\xff"[bits & 7];
	}
}

static int sign(int value) { return (value > 0) - (value < 0); }

static void offset(const void *found, const char *start) { add(found ? (const char *)found - start : -1); }

static void contents(const char *at, size_t size)
{
	size_t i = 0;

	for (; i + 8 <= size; i += 8) {
		uint64_t word;
		__builtin_memcpy(&word, at + i, 8);
		add(word);
	}
	for (; i < size; i++)
		add((unsigned char)at[i]);
}

/* Functions that read: `a` and `b` are strings of `size` letters before their zero. */
static void reading(unsigned which, char *a, char *b, size_t size)
{
	size_t at = size ? next() % size : 0;
	int letter = "abcdAB\x80\xff"[next() & 7];

	switch (which) {
	case 0: add(strlen(a)); break;
	case 1: add(strnlen(a, next() % (size + 2))); break;
	case 2: offset(memchr(a, letter, size), a); break;
	case 3: offset(memrchr(a, letter, size), a); break;
	case 4: if (size) a[at] = '#'; offset(rawmemchr(a, size ? '#' : 0), a); break;
	case 5: offset(strchr(a, letter), a); break;
	case 6: offset(strrchr(a, letter), a); break;
	case 7: offset(strchrnul(a, letter), a); break;
	case 8: add(sign(memcmp(a, b, size))); break;
	case 9: memcpy(b, a, size); if (size) b[at] ^= next() & 1; add(sign(memcmp(a, b, size))); break;
	case 10: strcpy(b, a); if (size) b[at] ^= next() & 1; add(sign(strcmp(a, b))); break;
	case 11: strcpy(b, a); if (size) b[at] ^= next() & 1;
		add(sign(strncmp(a, b, next() % (size + 2)))); break;
	case 12: strcpy(b, a); if (size) b[at] ^= 0x20; add(sign(strcasecmp(a, b))); break;
	case 13: strcpy(b, a); if (size) b[at] ^= 0x20; add(sign(strncasecmp(a, b, size))); break;
	case 14: add(strspn(a, "abcd")); break;
	case 15: add(strcspn(a, "#\xff")); break;
	case 16: offset(strpbrk(a, "B\x80"), a); break;
	case 17: b[size < 3 ? size : 3] = 0; offset(strstr(a, b), a); break;
	case 18: offset(memmem(a, size, b, size < 3 ? size : 3), a); break;
	case 19: add(sign(strverscmp(a, b))); break;
	case 20: offset(strcasestr(a, "cdA"), a); break;
	}
}

enum { READING = 21 };

/* Functions that write `size` bytes at `b`. */
static void writing(unsigned which, char *a, char *b, size_t size)
{
	switch (which) {
	case 0: memcpy(b, a, size); break;
	case 1: offset(mempcpy(b, a, size), b); break;
	case 2: memset(b, next(), size); break;
	case 3: strcpy(b, a); break;
	case 4: offset(stpcpy(b, a), b); break;
	case 5: strncpy(b, a, size); break;
	case 6: offset(stpncpy(b, a, size), b); break;
	case 7: *b = 0; strcat(b, a); break;
	case 8: *b = 0; strncat(b, a, size); break;
	case 9: offset(memccpy(b, a, "abcd"[next() & 3], size), b); break;
	case 10: bzero(b, size); break;
	}
	contents(b, size);
}

enum { WRITING = 11 };

/* Functions of wide characters: `a` and `b` are aligned, and have `size` characters before the zero. */
static void wide(unsigned which, wchar_t *a, wchar_t *b, size_t size)
{
	wchar_t letter = a[size ? next() % size : 0];

	switch (which) {
	case 0: add(wcslen(a)); break;
	case 1: add(wcsnlen(a, next() % (size + 2))); break;
	case 2: offset(wcschr(a, letter), (char *)a); break;
	case 3: offset(wcsrchr(a, letter), (char *)a); break;
	case 4: offset(wmemchr(a, letter, size), (char *)a); break;
	case 5: wcscpy(b, a); b[size / 2] ^= next() & 1; add(sign(wcscmp(a, b))); break;
	case 6: wcscpy(b, a); b[size / 2] ^= next() & 1; add(sign(wcsncmp(a, b, size))); break;
	case 7: wmemcpy(b, a, size); b[size / 2] ^= next() & 1; add(sign(wmemcmp(a, b, size))); break;
	case 8: wmemset(b, letter, size); contents((char *)b, size * sizeof *b); break;
	case 9: add(sign(wcscmp(a, b))); break;
	}
}

enum { WIDE = 10 };

/* Places `size` bytes so that they end `gap` bytes before the end of the pages, or begin there. */
static char *place(char *in, size_t size, unsigned gap, int at_end)
{
	return at_end ? in + ROOM - size - gap : in + PAGE - 64 + gap;
}

enum { SIZES = 200, GAPS = 96 };

int main(int count, char **arguments)
{
	unsigned step = count > 1 ? atoi(arguments[1]) : 1, sizes_count = 0, gaps_count = 0;
	size_t sizes[SIZES];
	unsigned gaps[GAPS];

	if (!step)
		return 2;
	one = pages();
	two = pages();
	for (size_t size = 0; size < LARGE; size += 1 + size / 80 * 7)
		sizes[sizes_count++] = size;
	for (unsigned gap = 0; gap < 128; gap += 1 + gap / 64)
		gaps[gaps_count++] = gap;
	unsigned all = sizes_count * gaps_count;
	for (unsigned which = 0; which < READING + WRITING + WIDE; which++) {
		/* With a large step, of another size for each function. */
		unsigned first = which * 997 % (step < all ? step : all);
		hash ^= which;
		for (unsigned number = first; number < all; number += step) {
			size_t size = sizes[number / gaps_count], bytes = size + 1;
			unsigned gap = gaps[number % gaps_count], other = next() % 64;
			int at_end = next() & 1;
			if (which < READING + WRITING) {
				char *a = place(one, bytes, gap, at_end);
				char *b = place(two, bytes, other, !at_end);
				fill(a, size);
				fill(b, size);
				a[size] = b[size] = 0;
				if (which < READING)
					reading(which, a, b, size);
				else
					writing(which - READING, a, b, size);
			} else {
				bytes *= sizeof(wchar_t);
				wchar_t *a = (wchar_t *)place(one, bytes, gap & ~3, at_end);
				wchar_t *b = (wchar_t *)place(two, bytes, other & ~3, !at_end);
				for (size_t i = 0; i < size; i++) {
					a[i] = 1 + next() % 3;
					b[i] = 1 + next() % 3;
				}
				a[size] = b[size] = 0;
				wide(which - READING - WRITING, a, b, size);
			}
		}
		printf("%u %016lx\n", which, hash);
	}
	/* Moves that overlap, in both directions, up to sizes that take other ways. */
	for (size_t i = 0; i < ROOM; i += 4) {
		uint32_t word = 0x61616161 + (next() & 0x03030303);
		__builtin_memcpy(one + i, &word, 4);
	}
	for (size_t size = 0; size < 2 * PAGE - 256; size += 1 + step / 100 + size / 16) {
		for (unsigned gap = 0; gap < 64; gap += 7 + step / 100) {
			memmove(one + gap, one + (gap * 5) % 64, size);
			add(memcmp(one, two, size) > 0);
			offset(memchr(one, '#', ROOM), one);
		}
	}
	contents(one, ROOM);
	printf("%016lx\n", hash);
	return 0;
}
