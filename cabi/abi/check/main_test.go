package main

import (
	"slices"
	"testing"
)

const sample = `
typedef unsigned int u32;
struct other { int not_ours; };
enum ibv_a { IBV_X = (1 << 2), IBV_Y, IBV_Z = 7, };
enum { IBV_W };
static inline int f(struct ibv_b *b) { return b->one; }
struct ibv_b {
	u32 one, two[4];
	__attribute__((aligned(8))) u32 three;
	union { u32 four; struct { u32 *five; } six; };
	struct { union { u32 eight; } seven; } nine, ten;
	int (*call)(struct ibv_b *b, u32 not_a_member);
	const struct ibv_b *(*more)(void);
};
union ibv_c { u32 raw; };
`

func TestParseFindsMembersAndValues(t *testing.T) {
	n := parse(sample)
	if want := []string{"IBV_X", "IBV_Y", "IBV_Z", "IBV_W"}; !slices.Equal(n.values, want) {
		t.Errorf("values %v: must be %v", n.values, want)
	}
	want := []string{"one", "two", "three", "four", "six", "six.five", "nine", "nine.seven", "nine.seven.eight", "ten",
		"ten.seven", "ten.seven.eight", "call", "more"}
	if got := n.records["struct ibv_b"]; !slices.Equal(got, want) {
		t.Errorf("members %v: must be %v", got, want)
	}
	if len(n.records) != 2 || !slices.Equal(n.records["union ibv_c"], []string{"raw"}) {
		t.Errorf("records %v: must be struct ibv_b and union ibv_c", n.records)
	}
}

func TestMissingNamesWhatOnlyTheOthersHave(t *testing.T) {
	ours := parse("struct ibv_b { int one; }; enum ibv_a { IBV_X };")
	theirs := parse("struct ibv_b { int one, two; }; struct ibv_d { int e; }; enum ibv_a { IBV_X, IBV_Y };")
	var got []string
	for _, err := range missing(ours, theirs) {
		got = append(got, err.Error())
	}
	want := []string{"struct ibv_b.two: only there", "struct ibv_d: only there", "IBV_Y: only there"}
	if !slices.Equal(got, want) {
		t.Errorf("%q: must be %q", got, want)
	}
}
