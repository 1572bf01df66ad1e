package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestIDsInNames(t *testing.T) {
	for name, want := range map[string]string{
		"TestV_QPS_04_PostingByState":  "V-QPS-04",
		"V_QPS_14_V_QPS_13_SendsFail":  "V-QPS-14 V-QPS-13",
		"V-TR-01_UC_does_no_READ":      "V-TR-01",
		"TestD_02_Half":                "D-02",
		"V_AE_12_D_45_X_WC_01_Overrun": "V-AE-12 D-45 X-WC-01",
		"TestV_QPQ_24Bit_Properties":   "",
		"TestV_AE_EventTypes":          "",
		"TestRealTime":                 "",
		"FuzzX_WC_02_Anything":         "X-WC-02",
		"TestC_QP_02_04_V_REG_01_It":   "C-QP-02 C-QP-04 V-REG-01",
		"W_CM_04_05_06_Attrs":          "W-CM-04 W-CM-05 W-CM-06",
		"TestT_01_W_CMA_12_Psn_16_Bit": "T-01 W-CMA-12",
		"TestC_LIS_07_Backlog_16":      "C-LIS-07",
	} {
		if got := strings.Join(idsIn(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

const (
	listText = "# List\n\n## 1. One\n\n| ID | Kind | Statement |\n|---|---|---|\n" +
		"| V-AB-01 |  | first |\n| V-AB-02 | advice | second |\n" +
		"| V-AB-03 |  | third |\n| V-AB-04 |  | fake |\n\n" +
		"## 2. Two\n\n| ID | Kind | Statement |\n|---|---|---|\n| D-01 |  | fourth |\n"
	testText = "package p\nfunc TestV_AB_01_It(t *testing.T) {\n\tt.Run(\"V_AB_02_In%d\", nil)\n" +
		"\tt.Errorf(\"V-AB-03 is no name\")\n\t// as V-AB-03 says\n}\n" +
		"func TestMany(t *testing.T) {\n\tif x { // V-AB-01, V-AB-02: both\n\t}\n}\nfunc (x) TestD_01_No() {}\n"
	pageText = "by hand\n" + beginMark + "old\n" + endMark + "more by hand\n"
)

const (
	refusedText       = "# Refused\n\n| ID | Why |\n|---|---|\n| D-01 | EOPNOTSUPP: no |\n"
	notApplicableText = "# Others\n\n| ID | Why |\n|---|---|\n| V-AB-03 | it is about paper |\n"
)

// Two tests and a table of subtests that only one of them uses run on a fake driver, the others do not.
const fakeText = `package p

//conformance:fake
type fakeDevice struct{}

func (fakeDevice) Open(DriverContextEvents) error { return nil }

func open() fakeDevice { return fakeDevice{} }

func TestV_AB_04_OnFake(*testing.T) { open() }

func TestV_AB_01_OnFakeToo(*testing.T) { use(table, open) }

var table = []string{"V_AB_04_InTable"}

//conformance:device
type wrapper struct{ Device }

func (wrapper) Open(verbs.DriverContextEvents) error { return nil }

func TestV_AB_02_OnDevice(*testing.T) { _ = wrapper{} }
`

func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPage(t *testing.T) {
	root := tree(t, map[string]string{
		"docs/spec/x-ids.md": listText, "page.md": pageText,
		"docs/spec/refused.md": refusedText, "docs/spec/not-applicable.md": notApplicableText,
		"internal/p/p_test.go":                 testText,
		"internal/p/fake_test.go":              fakeText,
		"internal/p/p.go":                      "package p\nconst not = \"V_AB_03_NotATest\"\n",
		"internal/conformance/cases.go":        "package conformance\nvar c = \"V_AB_01_Case\"\n",
		"internal/p/testdata/nonsense_test.go": "this is no Go",
	})
	if err := run(root, "page.md", false); err == nil || !strings.Contains(err.Error(), "not up to date") {
		t.Errorf("an old page: %v", err)
	}
	if err := run(root, "page.md", true); err != nil {
		t.Fatal(err)
	}
	if err := run(root, "page.md", false); err != nil {
		t.Errorf("a new page: %v", err)
	}
	var text string
	for _, name := range []string{"page.md", "page/x-01.md", "page/x-02.md"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	lines := strings.Split(text, "\n")
	for _, want := range []string{
		"by hand", "more by hand", "| [1. One](page/x-01.md) | 4 | 2 | 1 | 0 | 1 |",
		"| [2. Two](page/x-02.md) | 1 | 0 | 0 | 1 | 0 |", "| **All** | **5** | **2** | **1** | **1** | **1** |", "# 1. One",
		"| V-AB-01 | first | `conformance.V_AB_01_Case` `p.TestMany` `p.TestV_AB_01_It` | `p.TestV_AB_01_OnFakeToo` |  |  |",
		"| V-AB-02 | second | `p.TestMany` `p.TestV_AB_02_OnDevice` `p.V_AB_02_In*` |  |  |  |",
		"| V-AB-03 | third |  |  |  | it is about paper |",
		"| V-AB-04 | fake |  | `p.TestV_AB_04_OnFake` `p.V_AB_04_InTable` |  |  |",
		"| D-01 | fourth |  |  | EOPNOTSUPP: no |  |",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the pages lack %q:\n%s", want, text)
		}
	}
	stale := filepath.Join(root, "page", "x-03.md")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(root, "page.md", false); err == nil || !strings.Contains(err.Error(), "x-03.md") {
		t.Errorf("a page without a section: %v", err)
	}
	if err := run(root, "page.md", true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a page without a section stays")
	}
}

func TestUnknownStatement(t *testing.T) {
	root := tree(t, map[string]string{
		"docs/spec/x-ids.md": listText, "page.md": pageText, "p_test.go": "package p\nfunc TestV_AB_09_It() {}\n",
	})
	if err := run(root, "page.md", true); err == nil || !strings.Contains(err.Error(), "V-AB-09") {
		t.Errorf("error %v", err)
	}
}

func TestReasons(t *testing.T) {
	for name, c := range map[string]struct{ refused, not, want string }{
		"no reason":       {"", notApplicableText, "D-01 has no test, and stands neither"},
		"overtaken":       {refusedText, notApplicableText + "| V-AB-02 | paper |\n", "V-AB-02 has a test"},
		"two":             {refusedText, notApplicableText + "| V-AB-03 | once more |\n", "V-AB-03 has two"},
		"in both":         {refusedText, notApplicableText + "| D-01 | once more |\n", "D-01 has two"},
		"of no statement": {refusedText, notApplicableText + "| V-AB-09 | paper |\n", "V-AB-09"},
		"empty":           {"| D-01 |  |\n", notApplicableText, "D-01 has no test"},
	} {
		root := tree(t, map[string]string{
			"docs/spec/x-ids.md": listText, "page.md": pageText, "internal/p/p_test.go": testText,
			"docs/spec/refused.md": c.refused, "docs/spec/not-applicable.md": c.not, "internal/p/fake_test.go": fakeText,
		})
		if err := run(root, "page.md", true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A type that opens like a device must say which kind it is.
func TestUnmarkedDevice(t *testing.T) {
	root := tree(t, map[string]string{
		"docs/spec/x-ids.md": listText, "page.md": pageText,
		"p_test.go": strings.ReplaceAll(fakeText, "//conformance:device\n", ""),
	})
	err := run(root, "page.md", true)
	if err == nil || !strings.Contains(err.Error(), "type wrapper opens like a device") {
		t.Errorf("error %v", err)
	}
}
