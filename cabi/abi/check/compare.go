package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// around grows at its beginning: its members are measured from its last one.
const around = "struct verbs_context"

// flexible is a member without a size.
const flexible = "struct ib_user_mad.data"

// grown are the structures that later releases made longer at their end.
var grown = []string{around, "struct ibv_port_attr", "struct ibv_qp_ex"}

// opaque are structures that no program sees through us: what the kernel reads, and what releases after 44 added, which
// no Verbena device has.
var opaque = []string{
	"ibv_mr_init_attr", "ibv_dmah", "ibv_fd_arr", "ibv_comp_cntr",
	"ibv_qp_attach_comp_cntr_attr", "ibv_buf",
	"ibv_path_", "ibv_sa_mcmember_rec", "ibv_sa_service_rec", // records that programs pass through
}

// later are enumerators of releases after 44 without a Verbena device that has the feature.
var later = []string{
	"IB_UVERBS_", "IB_FLUSH_", "IB_USER_VERBS_", "RDMA_DRIVER_", "IBV_ODP_SUPPORT_FLUSH", "IBV_ODP_SUPPORT_ATOMIC_WRITE",
	"IBV_PORT_LINK_SPEED_XDR_SUP", "IBV_EVENT_DEVICE_SPEED_CHANGE", "IBV_ACCESS_FLUSH_", "IBV_REG_MR_MASK_",
	"IBV_QP_ATTACH_COMP_CNTR_", "IBV_COMP_CNTR_", "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC", "IBV_TPH_MEM_TYPE_",
	"IBV_DMAH_INIT_ATTR_",
}

// macros are the values that verbs.h has as macros.
var macros = []string{
	"IBV_DEVICE_RAW_SCATTER_FCS", "IBV_DEVICE_PCI_WRITE_END_PADDING", "IBV_ACCESS_OPTIONAL_FIRST",
	"IBV_ACCESS_OPTIONAL_RANGE", "IBV_ALLOCATOR_USE_DEFAULT", "IBV_QPF_GRH_REQUIRED", "IBV_ADVISE_MR_ADVICE_PREFETCH",
	"IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE", "IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT", "IBV_ADVISE_MR_FLAG_FLUSH",
}

// cmMacros are those of rdma_cma.h.
var cmMacros = []string{"RAI_PASSIVE", "RAI_NUMERICHOST", "RAI_NOROUTE", "RAI_FAMILY"}

// compare prints what was compared and returns an error for each difference.
func compare(ours, theirs *header) error {
	source := probe(ours.names, theirs.names)
	a, err := ours.measure(source)
	if err != nil {
		return err
	}
	b, err := theirs.measure(source)
	if err != nil {
		return err
	}
	errs := missing(ours.names, theirs.names)
	equal := 0
	for _, key := range a.keys {
		switch x, y := a.value[key], b.value[key]; {
		case x == y:
			equal++
		case strings.HasPrefix(key, "sizeof ") && slices.Contains(grown, strings.TrimPrefix(key, "sizeof ")) && x > y:
			fmt.Printf("%s: %d here, %d there: later releases made it longer\n", key, x, y)
		default:
			errs = append(errs, fmt.Errorf("%s: %d here, %d there", key, x, y))
		}
	}
	fmt.Printf("%d sizes, offsets and values are equal, %d differ\n", equal, len(errs))
	return errors.Join(errs...)
}

// missing returns an error for each structure, member and enumerator that only theirs have.
func missing(ours, theirs *names) []error {
	var errs []error
	for _, record := range sorted(theirs.records) {
		name := record[strings.Index(record, " ")+1:]
		if has(opaque, name) {
			continue
		}
		if _, ok := ours.records[record]; !ok {
			errs = append(errs, fmt.Errorf("%s: only there", record))
			continue
		}
		for _, m := range theirs.records[record] {
			if !slices.Contains(ours.records[record], m) && !strings.HasPrefix(name, "ibv_flow_action_esp") {
				errs = append(errs, fmt.Errorf("%s.%s: only there", record, m))
			}
		}
	}
	for _, v := range theirs.values {
		if strings.HasPrefix(v, "IB") && !slices.Contains(ours.values, v) && !has(later, v) {
			errs = append(errs, fmt.Errorf("%s: only there", v))
		}
	}
	return errs
}

// has reports whether name begins with one of the prefixes.
func has(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// probe returns a C program, without its includes, that prints everything both sides declare.
func probe(ours, theirs *names) string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n")
	number := func(key, expression string) {
		fmt.Fprintf(&b, "printf(\"%s\\t%%lld\\n\", (long long)(%s));\n", key, expression)
	}
	for _, record := range sorted(ours.records) {
		if _, ok := theirs.records[record]; !ok {
			continue
		}
		number("sizeof "+record, "sizeof("+record+")")
		for _, m := range ours.records[record] {
			if !slices.Contains(theirs.records[record], m) {
				continue
			}
			if record+"."+m != flexible {
				number("sizeof "+record+"."+m, "sizeof((("+record+" *)0)->"+m+")")
			}
			offset := "offsetof(" + record + ", " + m + ")"
			if record == around {
				offset += " - offsetof(" + record + ", context)"
			}
			number("offsetof "+record+"."+m, "(long long)"+offset)
		}
	}
	for _, v := range ours.values {
		if slices.Contains(theirs.values, v) {
			number(v, v)
		}
	}
	for _, v := range macros {
		number(v, v)
	}
	b.WriteString("return 0; }\n")
	return b.String()
}

// numbers are what a probe printed.
type numbers struct {
	keys  []string
	value map[string]int64
}

// measure compiles the probe with the header and runs it.
func (h *header) measure(source string) (*numbers, error) {
	dir, err := os.MkdirTemp("", "abicheck")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	exe := filepath.Join(dir, "probe")
	if _, err := gcc(h.include+source, append([]string{"-w", "-o", exe, "-"}, h.flags...)...); err != nil {
		return nil, err
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		return nil, err
	}
	n := &numbers{value: map[string]int64{}}
	for line := range strings.Lines(string(out)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		n.keys = append(n.keys, key)
		n.value[key] = v
	}
	return n, nil
}

func sorted(m map[string][]string) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
