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
		"| V-AB-03 |  | third |\n\n## 2. Two\n\n| ID | Kind | Statement |\n|---|---|---|\n| D-01 |  | fourth |\n"
	testText = "package p\nfunc TestV_AB_01_It(t *testing.T) {\n\tt.Run(\"V_AB_02_In%d\", nil)\n" +
		"\tt.Errorf(\"V-AB-03 is no name\")\n\t// as V-AB-03 says\n}\n" +
		"func TestMany(t *testing.T) {\n\tif x { // V-AB-01, V-AB-02: both\n\t}\n}\nfunc (x) TestD_01_No() {}\n"
	pageText = "by hand\n" + beginMark + "old\n" + endMark + "more by hand\n"
)

const reasonText = "# Reasons\n\n| ID | Why |\n|---|---|\n| V-AB-03 | it is about paper |\n\n" +
	"## Not done yet\n\n| D-01, V-AB-01 | raw packets |\n"

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
		"docs/spec/x-ids.md": listText, "docs/spec/untested.md": reasonText, "page.md": pageText,
		"internal/p/p_test.go":                 testText,
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
		"by hand", "more by hand", "| [1. One](page/x-01.md) | 3 | 2 | 0 |",
		"| [2. Two](page/x-02.md) | 1 | 0 | 1 |", "| **All** | **4** | **2** | **1** |", "# 1. One",
		"| V-AB-01 | first | `conformance.V_AB_01_Case` `p.TestMany` `p.TestV_AB_01_It` |",
		"| V-AB-02 | second | `p.TestMany` `p.V_AB_02_In*` |",
		"| V-AB-03 | third | none: it is about paper |", "| D-01 | fourth | **none yet**: raw packets |",
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
		"docs/spec/x-ids.md": listText, "page.md": pageText, "p_test.go": "package p\nfunc TestV_AB_04_It() {}\n",
	})
	if err := run(root, "page.md", true); err == nil || !strings.Contains(err.Error(), "V-AB-04") {
		t.Errorf("error %v", err)
	}
}

func TestReasons(t *testing.T) {
	for name, c := range map[string]struct{ reasons, want string }{
		"no reason":       {"| V-AB-03 | paper |\n", "D-01 has neither"},
		"overtaken":       {reasonText + "## Others\n| V-AB-02 | paper |\n", "V-AB-02 has a test"},
		"two":             {reasonText + "| V-AB-03 | once more |\n", "V-AB-03 has two"},
		"of no statement": {reasonText + "| V-AB-09 | paper |\n", "V-AB-09"},
		"empty":           {"| D-01 |  |\n", "D-01 has neither"},
	} {
		root := tree(t, map[string]string{
			"docs/spec/x-ids.md": listText, "docs/spec/untested.md": c.reasons, "page.md": pageText,
			"internal/p/p_test.go": testText,
		})
		if err := run(root, "page.md", true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
