/* Executes the instructions of x86-64-v3 and of its neighbours, group by group, on numbers of every
 * kind, and prints a hash of the results of each. A group that cpuid does not announce is left out.
 *
 * Usage: groups ROUNDS [GROUP]. With 0, each instruction is executed once, and nothing is printed of
 * it: for who compares registers and memory behind every instruction. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef union {
	uint8_t bytes[32];
	uint32_t words[8];
	uint64_t longs[4];
} __attribute__((aligned(32))) Vector;

Vector a, b, c, out[4];
uint64_t x, y, z;
static unsigned rounds;
/* Whether results are hashed and printed. */
static int told = 1;
static const char *only;
char *edge; /* The last byte before a page that is not mapped. */

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Numbers near points where behaviour changes, as bits of 64 or twice 32. */
static uint64_t number(void)
{
	static const uint32_t singles[] = { 0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f000000, 0x4b000001,
		0x4f000000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc12345, 0x33000000, 0x477ff000 };
	static const uint64_t doubles[] = { 0, 1, 0xfffffffffffff, 0x10000000000000, 0x3ff0000000000000,
		0x41dfffffffc00000, 0x43e0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000,
		0x7ff0000000000001, 0x7ff8000000012345, 0x36a0000000000000, 0x47efffffe0000000 };
	uint64_t bits = next(), sign = bits & 0x8000000080000000;

	switch (bits >> 8 & 7) {
	case 0: return bits;
	case 1: return next() >> (bits & 63);
	case 2: return doubles[next() % 13] | (bits & 1ull << 63);
	case 3: return singles[next() % 14] | (uint64_t)singles[next() % 14] << 32 | sign;
	case 4: { float f[2] = { (int32_t)next() / 64.0f, (int16_t)next() / 2.0f };
		uint64_t both; memcpy(&both, f, 8); return both; }
	default: { double d = (int64_t)next() / (double)(1ull << (bits >> 16 & 63));
		uint64_t both; memcpy(&both, &d, 8); return both; }
	}
}

static void fill(Vector *to)
{
	for (int i = 0; i < 4; i++)
		to->longs[i] = number();
}

/* New numbers in all operands or, where nothing is printed, in one: making numbers would be most of
 * what is executed. */
static void operands(void)
{
	if (told) {
		fill(&a); fill(&b); fill(&c);
	} else {
		c = b; b = a;
		fill(&a);
	}
}

static uint64_t hash;

/* Takes words, and `put` no format: this and not the groups is most of what is executed. */
static void add(const void *from, size_t size)
{
	const char *bytes = from;

	for (size_t i = 0; told && i < size; i += 4) {
		uint32_t word;
		__builtin_memcpy(&word, bytes + i, 4);
		hash = (hash ^ word) * 0x100000001b3;
	}
}

static char text[1 << 16];
static size_t used;

/* Writes the first line of a name and the hash behind what was put before. */
static void put(const char *name)
{
	if (!told)
		return;
	while (*name && *name != '\n')
		text[used++] = *name++;
	text[used++] = ' ';
	for (int shift = 60; shift >= 0; shift -= 4)
		text[used++] = "0123456789abcdef"[hash >> shift & 15];
	text[used++] = '\n';
}

static void flush(void)
{
	fwrite(text, 1, used, stdout);
	used = 0;
}

/* The rounding, FTZ, DAZ and flags of a round: all exceptions are masked. */
static unsigned mxcsr(unsigned round)
{
	return 0x1f80 | (round & 3) << 13 | (round & 4) << 13 | (round & 8) << 3;
}

/* Calls the body for random operands, and prints the hash of what it leaves in `out`, `x`, `y` and
 * MXCSR. */
#define EACH(name, body) do { \
	hash = 0xcbf29ce484222325; \
	for (unsigned round = 0; round < rounds; round++) { \
		unsigned control = mxcsr(round), after; \
		operands(); \
		if (told && !(round & 3)) memcpy(&b, &a, 16); \
		x = number(); y = number(); \
		if (told) memset(out, 0x55, sizeof out); \
		asm volatile("ldmxcsr %0" :: "m"(control)); \
		body; \
		asm volatile("stmxcsr %0" : "=m"(after)); \
		control = 0x1f80; \
		asm volatile("ldmxcsr %0" :: "m"(control)); \
		if (told) { add(out, sizeof out); add(&x, 8); add(&y, 8); add(&after, 4); } \
	} \
	put(name); \
} while (0)

#define CLOBBERED "xmm0", "xmm1", "xmm2", "memory", "cc"
#define LOAD "vmovups a(%%rip), %%ymm1\n vmovups b(%%rip), %%ymm2\n vmovups c(%%rip), %%ymm0\n"
#define KEEP(n) "vmovups %%ymm0, out+32*" #n "(%%rip)\n"
#define RELOAD "vmovups c(%%rip), %%ymm0\n"

/* Of two sources: ymm and xmm, register and memory. The upper half of an xmm result is seen. */
#define TWO(name) EACH(#name, asm volatile(LOAD \
	#name " %%ymm2, %%ymm1, %%ymm0\n" KEEP(0) RELOAD \
	#name " b(%%rip), %%ymm1, %%ymm0\n" KEEP(1) RELOAD \
	#name " %%xmm1, %%xmm2, %%xmm0\n" KEEP(2) RELOAD \
	#name " a+16(%%rip), %%xmm2, %%xmm0\n" KEEP(3) ::: CLOBBERED));
#define TWO_IMM(name, imm) EACH(#name " " #imm, asm volatile(LOAD \
	#name " $" #imm ", %%ymm2, %%ymm1, %%ymm0\n" KEEP(0) RELOAD \
	#name " $" #imm ", b(%%rip), %%ymm1, %%ymm0\n" KEEP(1) RELOAD \
	#name " $" #imm ", %%xmm1, %%xmm2, %%xmm0\n" KEEP(2) ::: CLOBBERED));
#define WIDE_IMM(name, imm) EACH(#name " " #imm, asm volatile(LOAD \
	#name " $" #imm ", %%ymm2, %%ymm1, %%ymm0\n" KEEP(0) RELOAD \
	#name " $" #imm ", b(%%rip), %%ymm1, %%ymm0\n" KEEP(1) ::: CLOBBERED));
/* Of one source. */
#define ONE(name) EACH(#name, asm volatile(LOAD \
	#name " %%ymm1, %%ymm0\n" KEEP(0) RELOAD \
	#name " b(%%rip), %%ymm0\n" KEEP(1) RELOAD \
	#name " %%xmm2, %%xmm0\n" KEEP(2) ::: CLOBBERED));
#define ONE_IMM(name, imm) EACH(#name " " #imm, asm volatile(LOAD \
	#name " $" #imm ", %%ymm1, %%ymm0\n" KEEP(0) RELOAD \
	#name " $" #imm ", %%xmm2, %%xmm0\n" KEEP(1) ::: CLOBBERED));
#define WIDE_ONE_IMM(name, imm) EACH(#name " " #imm, asm volatile(LOAD \
	#name " $" #imm ", %%ymm1, %%ymm0\n" KEEP(0) ::: CLOBBERED));
/* Any text: ymm0 is kept. */
#define TEXT(text) EACH(text, asm volatile(LOAD text "\n" KEEP(0) ::: CLOBBERED));
/* Of scalars in xmm. */
#define SCALAR(name) EACH(#name, asm volatile(LOAD \
	#name " %%xmm2, %%xmm1, %%xmm0\n" KEEP(0) RELOAD \
	#name " b(%%rip), %%xmm1, %%xmm0\n" KEEP(1) ::: CLOBBERED));
/* Of general registers, with CF and ZF after it: others may be undefined. */
#define FLAGS "pushfq\n popq z(%%rip)\n"
#define GENERAL(text) EACH(text, ({ asm volatile("cmp %%edx, %%eax\n" text "\n" FLAGS \
	: "+a"(x), "+d"(y) : "c"(a.longs[1]) : "memory", "cc"); z &= 0x41; add(&z, 8); }));

static void avx(void)
{
	TWO(vaddps) TWO(vaddpd) TWO(vsubps) TWO(vsubpd) TWO(vmulps) TWO(vmulpd) TWO(vdivps) TWO(vdivpd)
	TWO(vminps) TWO(vminpd) TWO(vmaxps) TWO(vmaxpd) TWO(vaddsubps) TWO(vaddsubpd) TWO(vhaddps)
	TWO(vhaddpd) TWO(vhsubps) TWO(vhsubpd) TWO(vandps) TWO(vandpd) TWO(vandnps) TWO(vandnpd) TWO(vorps)
	TWO(vorpd) TWO(vxorps) TWO(vxorpd) TWO(vunpcklps) TWO(vunpckhps) TWO(vunpcklpd) TWO(vunpckhpd)
	TWO(vpermilps) TWO(vpermilpd)
	SCALAR(vaddss) SCALAR(vaddsd) SCALAR(vdivss) SCALAR(vdivsd) SCALAR(vsqrtss) SCALAR(vsqrtsd)
	SCALAR(vminsd) SCALAR(vmaxss) SCALAR(vcvtss2sd) SCALAR(vcvtsd2ss)
	TWO_IMM(vcmpps, 0) TWO_IMM(vcmpps, 9) TWO_IMM(vcmpps, 17) TWO_IMM(vcmpps, 30) TWO_IMM(vcmppd, 3)
	TWO_IMM(vcmppd, 12) TWO_IMM(vcmppd, 22) TWO_IMM(vcmppd, 31) TWO_IMM(vshufps, 0x4b)
	TWO_IMM(vshufpd, 5) TWO_IMM(vblendps, 0x5a) TWO_IMM(vblendpd, 6) 
	WIDE_IMM(vperm2f128, 0x02) WIDE_IMM(vperm2f128, 0x31) WIDE_IMM(vperm2f128, 0x88)
	ONE(vsqrtps) ONE(vsqrtpd) ONE(vmovshdup) ONE(vmovsldup) ONE(vmovddup) ONE(vcvtdq2ps)
	ONE(vcvtps2dq) ONE(vcvttps2dq)
	ONE_IMM(vroundps, 0) ONE_IMM(vroundps, 3) ONE_IMM(vroundpd, 4) ONE_IMM(vroundpd, 10)
	ONE_IMM(vpermilps, 0x39) ONE_IMM(vpermilpd, 9)
	TEXT("vcvtpd2psy %%ymm1, %%xmm0") TEXT("vcvtps2pd %%xmm1, %%ymm0") TEXT("vcvtdq2pd %%xmm2, %%ymm0")
	TEXT("vcvtpd2dqy %%ymm1, %%xmm0") TEXT("vcvttpd2dqy %%ymm2, %%xmm0")
	TEXT("vbroadcastss a+4(%%rip), %%ymm0") TEXT("vbroadcastsd b+8(%%rip), %%ymm0")
	TEXT("vbroadcastf128 a+16(%%rip), %%ymm0") TEXT("vextractf128 $1, %%ymm1, %%xmm0")
	TEXT("vinsertf128 $1, %%xmm2, %%ymm1, %%ymm0") TEXT("vinsertf128 $0, a+16(%%rip), %%ymm2, %%ymm0")
	TEXT("vblendvps %%ymm0, %%ymm1, %%ymm2, %%ymm0") TEXT("vblendvpd %%ymm0, %%ymm1, %%ymm2, %%ymm0")
	TEXT("vmaskmovps a(%%rip), %%ymm2, %%ymm0") TEXT("vmaskmovpd a(%%rip), %%xmm2, %%xmm0")
	TEXT("vmaskmovps %%ymm1, %%ymm2, out+64(%%rip)") TEXT("vmaskmovpd %%ymm1, %%ymm2, out+64(%%rip)")
	TEXT("vzeroupper") TEXT("vzeroall") TEXT("paddb %%xmm1, %%xmm0") TEXT("vmovd %%xmm1, %%eax\n vmovd %%eax, %%xmm0")
	TEXT("vptest %%ymm1, %%ymm2\n" FLAGS) TEXT("vtestps %%ymm1, %%ymm2\n" FLAGS)
	TEXT("vtestpd %%xmm1, %%xmm1\n" FLAGS) TEXT("vucomisd %%xmm1, %%xmm2\n" FLAGS)
	TEXT("vcomiss %%xmm1, %%xmm2\n" FLAGS) TEXT("vmovmskps %%ymm1, %%eax\n vmovd %%eax, %%xmm0")
	TEXT("vlddqu a(%%rip), %%ymm0") TEXT("vmovntps %%ymm1, out+64(%%rip)")
}

static void avx2(void)
{
	TWO(vpaddb) TWO(vpaddw) TWO(vpaddd) TWO(vpaddq) TWO(vpsubb) TWO(vpsubw) TWO(vpsubd) TWO(vpsubq)
	TWO(vpaddsb) TWO(vpaddusw) TWO(vpsubsw) TWO(vpsubusb) TWO(vpmullw) TWO(vpmulld) TWO(vpmulhw)
	TWO(vpmulhuw) TWO(vpmulhrsw) TWO(vpmuludq) TWO(vpmuldq) TWO(vpmaddwd) TWO(vpmaddubsw) TWO(vpsadbw)
	TWO(vpavgb) TWO(vpavgw) TWO(vpminsb) TWO(vpminuw) TWO(vpminsd) TWO(vpmaxub) TWO(vpmaxsw)
	TWO(vpmaxud) TWO(vpcmpeqb) TWO(vpcmpeqw) TWO(vpcmpeqd) TWO(vpcmpeqq) TWO(vpcmpgtb) TWO(vpcmpgtw)
	TWO(vpcmpgtd) TWO(vpcmpgtq) TWO(vpand) TWO(vpandn) TWO(vpor) TWO(vpxor) TWO(vpacksswb)
	TWO(vpackssdw) TWO(vpackuswb) TWO(vpackusdw) TWO(vpunpcklbw) TWO(vpunpckhwd) TWO(vpunpckldq)
	TWO(vpunpckhqdq) TWO(vpshufb) TWO(vpsignb) TWO(vpsignw) TWO(vpsignd) TWO(vphaddw) TWO(vphaddd)
	TWO(vphaddsw) TWO(vphsubw) TWO(vphsubd) TWO(vphsubsw) TWO(vpsllvd) TWO(vpsllvq) TWO(vpsrlvd)
	TWO(vpsrlvq) TWO(vpsravd) ONE(vpabsb) ONE(vpabsw) ONE(vpabsd)
	TWO_IMM(vpalignr, 5) TWO_IMM(vpalignr, 21) TWO_IMM(vpblendw, 0xa6) TWO_IMM(vpblendd, 0x3c)
	TWO_IMM(vmpsadbw, 0x2d) ONE_IMM(vpshufd, 0x4e) ONE_IMM(vpshufhw, 0x1b) ONE_IMM(vpshuflw, 0xb1)
	ONE_IMM(vpsllw, 7) ONE_IMM(vpslld, 33) ONE_IMM(vpsllq, 40) ONE_IMM(vpsrlw, 3) ONE_IMM(vpsrld, 9)
	ONE_IMM(vpsrlq, 63) ONE_IMM(vpsraw, 20) ONE_IMM(vpsrad, 5) ONE_IMM(vpslldq, 3) ONE_IMM(vpsrldq, 11)
	TEXT("vpand %%ymm2, %%ymm1, %%ymm0\n vpsllw %%xmm2, %%ymm1, %%ymm0")
	TEXT("vpsrad b(%%rip), %%ymm1, %%ymm0") TEXT("vpsrlq %%xmm1, %%ymm2, %%ymm0")
	WIDE_ONE_IMM(vpermq, 0x1b) WIDE_ONE_IMM(vpermpd, 0xd8) WIDE_IMM(vperm2i128, 0x21)
	TEXT("vpermd %%ymm1, %%ymm2, %%ymm0") TEXT("vpermps a(%%rip), %%ymm2, %%ymm0")
	TEXT("vpmovsxbw %%xmm1, %%ymm0") TEXT("vpmovsxbd a(%%rip), %%ymm0") TEXT("vpmovsxbq %%xmm2, %%ymm0")
	TEXT("vpmovzxwd %%xmm1, %%ymm0") TEXT("vpmovzxwq b(%%rip), %%ymm0") TEXT("vpmovzxdq %%xmm2, %%ymm0")
	TEXT("vpbroadcastb %%xmm1, %%ymm0") TEXT("vpbroadcastw a+2(%%rip), %%ymm0")
	TEXT("vpbroadcastd %%xmm2, %%xmm0") TEXT("vpbroadcastq a+8(%%rip), %%ymm0")
	TEXT("vbroadcastss %%xmm1, %%ymm0") TEXT("vbroadcasti128 a(%%rip), %%ymm0")
	TEXT("vextracti128 $1, %%ymm2, %%xmm0") TEXT("vinserti128 $1, %%xmm1, %%ymm2, %%ymm0")
	TEXT("vpblendvb %%ymm0, %%ymm1, %%ymm2, %%ymm0") TEXT("vpmovmskb %%ymm1, %%eax\n vmovd %%eax, %%xmm0")
	TEXT("vpmaskmovd a(%%rip), %%ymm2, %%ymm0") TEXT("vpmaskmovq a(%%rip), %%xmm2, %%xmm0")
	TEXT("vpmaskmovd %%ymm1, %%ymm2, out+64(%%rip)") TEXT("vpmaskmovq %%ymm1, %%ymm2, out+64(%%rip)")
	TEXT("vmovntdqa a(%%rip), %%ymm0") TEXT("vphminposuw %%xmm1, %%xmm0")
	TEXT("vpsrld $29, %%ymm1, %%ymm1\n lea a(%%rip), %%rax\n vpgatherdd %%ymm2, (%%rax,%%ymm1,4), %%ymm0\n vmovups %%ymm2, out+32(%%rip)")
	TEXT("vpsrlq $61, %%ymm1, %%ymm1\n lea a(%%rip), %%rax\n vpgatherqq %%ymm2, (%%rax,%%ymm1,8), %%ymm0\n vmovups %%ymm2, out+32(%%rip)")
	TEXT("vpsrad $30, %%xmm1, %%xmm1\n lea b(%%rip), %%rax\n vgatherdpd %%ymm2, (%%rax,%%xmm1,8), %%ymm0\n vmovups %%ymm2, out+32(%%rip)")
	TEXT("vpsrlq $62, %%ymm1, %%ymm1\n lea b(%%rip), %%rax\n vgatherqps %%xmm2, 4(%%rax,%%ymm1,2), %%xmm0\n vmovups %%ymm2, out+32(%%rip)")
}

#define FUSED(name) TWO(name##132ps) TWO(name##213ps) TWO(name##231pd)
#define FUSED_ALL(name) FUSED(name) SCALAR(name##132ss) SCALAR(name##213sd) SCALAR(name##231ss)

static void fma(void)
{
	FUSED_ALL(vfmadd) FUSED_ALL(vfmsub) FUSED_ALL(vfnmadd) FUSED_ALL(vfnmsub)
	FUSED(vfmaddsub) FUSED(vfmsubadd)
}

static void f16c(void)
{
	TEXT("vcvtph2ps %%xmm1, %%ymm0") TEXT("vcvtph2ps a(%%rip), %%xmm0")
	TEXT("vcvtps2ph $0, %%ymm1, %%xmm0") TEXT("vcvtps2ph $1, %%xmm1, %%xmm0")
	TEXT("vcvtps2ph $2, %%ymm2, out+40(%%rip)") TEXT("vcvtps2ph $7, %%xmm2, out+40(%%rip)")
}

static void bmi1(void)
{
	GENERAL("andnq %%rcx, %%rax, %%rdx") GENERAL("andnl %%ecx, %%edx, %%eax") GENERAL("blsiq %%rax, %%rdx")
	GENERAL("blsmskl %%ecx, %%eax") GENERAL("blsrq %%rdx, %%rax") GENERAL("bextrq %%rcx, %%rax, %%rdx")
	GENERAL("bextrl %%ecx, %%eax, %%edx") GENERAL("tzcntq %%rax, %%rdx") GENERAL("tzcntl %%eax, %%edx")
	GENERAL("tzcntw %%ax, %%dx")
}

static void bmi2(void)
{
	GENERAL("bzhiq %%rcx, %%rax, %%rdx") GENERAL("bzhil %%ecx, %%eax, %%edx") GENERAL("mulxq %%rcx, %%rax, %%rdx")
	GENERAL("mulxl %%ecx, %%eax, %%edx") GENERAL("pdepq %%rcx, %%rax, %%rdx") GENERAL("pextq %%rcx, %%rax, %%rdx")
	GENERAL("pdepl %%ecx, %%eax, %%edx") GENERAL("pextl %%ecx, %%eax, %%edx") GENERAL("rorxq $13, %%rax, %%rdx")
	GENERAL("rorxl $40, %%eax, %%edx") GENERAL("sarxq %%rcx, %%rax, %%rdx") GENERAL("shlxl %%ecx, %%eax, %%edx")
	GENERAL("shrxq %%rcx, %%rax, %%rdx") GENERAL("shrxl %%ecx, x(%%rip), %%eax")
}

static void lzcnt(void) { GENERAL("lzcntq %%rax, %%rdx") GENERAL("lzcntl %%eax, %%edx") GENERAL("lzcntw %%ax, %%dx") }

static void movbe(void)
{
	GENERAL("movbeq x(%%rip), %%rax") GENERAL("movbel a+4(%%rip), %%edx") GENERAL("movbew a+2(%%rip), %%ax")
	GENERAL("movbeq %%rcx, out(%%rip)") GENERAL("movbel %%ecx, out+8(%%rip)") GENERAL("movbew %%cx, out+16(%%rip)")
}

static void adx(void)
{
	GENERAL("adcxq %%rcx, %%rax\n adoxq %%rdx, %%rax\n adcxl %%ecx, %%edx")
	GENERAL("stc\n adcxq %%rcx, %%rax\n adcxq %%rcx, %%rdx") GENERAL("addb $127, %%al\n adoxl %%ecx, %%eax")
}

static void aes(void)
{
	TEXT("aesenc %%xmm1, %%xmm0") TEXT("aesenclast a(%%rip), %%xmm0") TEXT("aesdec %%xmm2, %%xmm0")
	TEXT("aesdeclast %%xmm1, %%xmm0") TEXT("aesimc %%xmm1, %%xmm0") TEXT("aeskeygenassist $0x1b, %%xmm2, %%xmm0")
	TEXT("vaesenc %%xmm1, %%xmm2, %%xmm0") TEXT("vaesdeclast b(%%rip), %%xmm1, %%xmm0")
	TEXT("vaesimc %%xmm1, %%xmm0") TEXT("vaeskeygenassist $7, %%xmm2, %%xmm0")
}

static void vaes(void) { TWO(vaesenc) TWO(vaesenclast) TWO(vaesdec) TWO(vaesdeclast) }

static void pclmul(void)
{
	TEXT("pclmulqdq $0, %%xmm1, %%xmm0") TEXT("pclmulqdq $0x11, %%xmm2, %%xmm0")
	TEXT("vpclmulqdq $0x10, %%xmm1, %%xmm2, %%xmm0")
}

static void vpclmul(void) { TWO_IMM(vpclmulqdq, 0x00) TWO_IMM(vpclmulqdq, 0x01) TWO_IMM(vpclmulqdq, 0x11) }

static void sha(void)
{
	TEXT("sha1rnds4 $0, %%xmm1, %%xmm0") TEXT("sha1rnds4 $3, %%xmm1, %%xmm0") TEXT("sha1nexte %%xmm1, %%xmm0")
	TEXT("sha1msg1 %%xmm1, %%xmm0") TEXT("sha1msg2 %%xmm1, %%xmm0") TEXT("sha256rnds2 %%xmm0, %%xmm1, %%xmm2")
	TEXT("sha256msg1 %%xmm1, %%xmm0") TEXT("sha256msg2 a(%%rip), %%xmm0")
}

static void gfni(void)
{
	TWO(vgf2p8mulb) TWO_IMM(vgf2p8affineqb, 0x63) TWO_IMM(vgf2p8affineinvqb, 0x05)
	TEXT("gf2p8mulb %%xmm1, %%xmm0") TEXT("gf2p8affineqb $9, %%xmm1, %%xmm0")
}

static void sse4a(void)
{
	TEXT("extrq $5, $17, %%xmm0") TEXT("extrq %%xmm1, %%xmm0") TEXT("insertq $9, $30, %%xmm1, %%xmm0")
	TEXT("insertq %%xmm1, %%xmm0") TEXT("movntss %%xmm1, out+64(%%rip)") TEXT("movntsd %%xmm2, out+72(%%rip)")
}

/* Numbers that differ from call to call: only that they come, and the flags. */
static void rdrand(void) { GENERAL("rdrand %%rax\n setc %%al\n movzbl %%al, %%eax") }
static void rdseed(void) { GENERAL("0: rdseed %%eax\n jnc 0b\n mov $3, %%eax") }
static void rdpid(void) { GENERAL("rdpid %%rax\n shr $12, %%rax") }

static void fsgsbase(void)
{
	GENERAL("rdfsbase %%rcx\n wrfsbase %%rcx\n xor %%ecx, %%ecx\n shl $20, %%rax\n shr $20, %%rax\n wrgsbase %%rax\n rdgsbase %%rdx")
	GENERAL("mov %%eax, %%eax\n wrgsbase %%eax\n rdgsbase %%edx")
}

static void clzero(void) { TEXT("lea out+64(%%rip), %%rax\n clzero %%rax") }

static void always(void)
{
	/* Far transfers within the code segment. */
	GENERAL("lea 1f(%%rip), %%rcx\n pushq $0x33\n pushq %%rcx\n lretq\n 0: ud2\n 1: xor %%ecx, %%ecx")
	GENERAL("lea 1f(%%rip), %%rcx\n movabs $0x3300000000, %%rdx\n or %%rcx, %%rdx\n pushq %%rdx\n ljmp *(%%rsp)\n ud2\n 1: add $8, %%rsp\n xor %%ecx, %%ecx")
	GENERAL("mov %%rsp, %%rcx\n pushq $0x2b\n pushq %%rcx\n pushq $0x246\n pushq $0x33\n lea 1f(%%rip), %%rcx\n pushq %%rcx\n iretq\n ud2\n 1: xor %%ecx, %%ecx")
	/* Instructions of CET, without CET. */
	GENERAL("endbr64\n rdsspq %%rax\n rdsspd %%edx")
	GENERAL("prefetchw x(%%rip)\n prefetcht0 x(%%rip)\n nopw (%%rax)\n nopl (%%rax)")
	/* Legacy forms keep the upper half. */
	TEXT("pand %%xmm1, %%xmm0") TEXT("addps %%xmm1, %%xmm0") TEXT("movaps a(%%rip), %%xmm0")
	TEXT("cvtpd2ps %%xmm1, %%xmm0") TEXT("pshufb b(%%rip), %%xmm0") TEXT("movss a(%%rip), %%xmm0")
}

static volatile int caught;
static volatile uintptr_t where;

/* Skips the instruction, whose length is in rcx. */
static void handler(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	caught = signal * 100 + (int)registers[REG_TRAPNO];
	where = signal == SIGSEGV && registers[REG_TRAPNO] == 14 ? (char *)info->si_addr - edge : 0;
	registers[REG_RIP] += registers[REG_RCX];
}

#define FAULT(text) do { \
	caught = 0; where = 0; \
	fill(&a); fill(&b); fill(&c); \
	asm volatile(LOAD "lea 2f-1f(%%rip), %%rcx\n lea 1f(%%rip), %%rdx\n lea 2f(%%rip), %%rcx\n sub %%rdx, %%rcx\n mov edge(%%rip), %%rax\n" \
		"1: " text "\n 2:\n" KEEP(0) "vmovups %%ymm2, out+32(%%rip)" ::: CLOBBERED, "rax", "rcx", "rdx"); \
	hash = 0; add(out, 64); \
	printf("%s: %d %ld %016lx\n", text, caught, (long)where, hash); \
} while (0)

static void faults(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGILL, &action, 0);
	sigaction(SIGFPE, &action, 0);
	memset(out, 0, sizeof out);
	FAULT("vmovaps a+16(%%rip), %%ymm0"); FAULT("vmovaps a+16(%%rip), %%xmm0");
	FAULT("vmovdqa a+1(%%rip), %%xmm0"); FAULT("vmovntdqa a+16(%%rip), %%ymm0");
	FAULT("vaddps a+1(%%rip), %%ymm1, %%ymm0"); FAULT("addps a+1(%%rip), %%xmm0");
	FAULT("vmovups -15(%%rax), %%ymm0"); FAULT("vmovups %%ymm1, -30(%%rax)");
	FAULT("vpmaskmovd -15(%%rax), %%ymm2, %%ymm0"); FAULT("vpmaskmovq %%ymm1, %%ymm2, -15(%%rax)");
	FAULT("vxorps %%ymm2, %%ymm2, %%ymm2\n vmaskmovps 1(%%rax), %%ymm2, %%ymm0");
	FAULT("vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n vpsrldq $15, %%ymm2, %%ymm1\n vpgatherdd %%ymm2, -3(%%rax,%%ymm1,4), %%ymm0");
	FAULT(".byte 0xc5, 0xf4, 0x77"); FAULT(".byte 0xc4, 0xe2, 0x7d, 0x58, 0xc9\n.byte 0x90, 0x90");
}

#define HAS(leaf, sub, reg, bit) ({ unsigned eax, ebx, ecx, edx; \
	__get_cpuid_count(leaf, sub, &eax, &ebx, &ecx, &edx) && (reg >> bit & 1); })

int main(int count, char **arguments)
{
	rounds = count > 1 ? atoi(arguments[1]) : 16;
	if (!rounds) {
		told = 0;
		rounds = 1;
	}
	only = count > 2 ? arguments[2] : 0;
	edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (edge == MAP_FAILED || munmap(edge + 4096, 4096))
		return 2;
	edge += 4095;
	if (!HAS(1, 0, ecx, 28)) {
		puts("no AVX");
		return 0;
	}
#define GROUP(name, has) if (!only || !strcmp(only, #name)) { \
		printf("%s: %s\n", #name, has ? "present" : "absent"); \
		state = 88172645463325252u; \
		if (has) name(); \
		flush(); }
	GROUP(avx, 1)
	GROUP(avx2, HAS(7, 0, ebx, 5))
	GROUP(fma, HAS(1, 0, ecx, 12))
	GROUP(f16c, HAS(1, 0, ecx, 29))
	GROUP(bmi1, HAS(7, 0, ebx, 3))
	GROUP(bmi2, HAS(7, 0, ebx, 8))
	GROUP(lzcnt, HAS(0x80000001, 0, ecx, 5))
	GROUP(movbe, HAS(1, 0, ecx, 22))
	GROUP(adx, HAS(7, 0, ebx, 19))
	GROUP(aes, HAS(1, 0, ecx, 25))
	GROUP(vaes, HAS(7, 0, ecx, 9))
	GROUP(pclmul, HAS(1, 0, ecx, 1))
	GROUP(vpclmul, HAS(7, 0, ecx, 10))
	GROUP(sha, HAS(7, 0, ebx, 29))
	GROUP(gfni, HAS(7, 0, ecx, 8))
	GROUP(sse4a, HAS(0x80000001, 0, ecx, 6))
	GROUP(rdrand, HAS(1, 0, ecx, 30))
	GROUP(rdseed, HAS(7, 0, ebx, 18))
	GROUP(rdpid, HAS(7, 0, ecx, 22))
	GROUP(fsgsbase, HAS(7, 0, ebx, 0))
	GROUP(clzero, HAS(0x80000008, 0, ebx, 0))
	GROUP(always, 1)
	GROUP(faults, HAS(7, 0, ebx, 5))
	return 0;
}
