package verbs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// source goes over the files of the project that are no tests.
func source(t *testing.T, do func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		do(path, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The page of errors tells of every status, event and errno.
func TestErrorsPageIsComplete(t *testing.T) {
	text := page(t, "errors.md")
	for s := range WCStatus(len(wcStatusTexts)) {
		if !regexp.MustCompile(`(?m)^\|[^|]*\b` + s.Name() + `\b[^|]*\|`).MatchString(text) {
			t.Errorf("nothing on the status %s", s.Name())
		}
	}
	for e := range EventType(len(eventTexts)) {
		if !regexp.MustCompile(`(?m)^\|[^|]*` + e.String() + `[^|]*\|`).MatchString(text) {
			t.Errorf("nothing on the event %q", e)
		}
	}
	errno := regexp.MustCompile(`\b(?:syscall|verbs|unix)\.(E[A-Z0-9]{3,})\b`)
	// Events of epoll, and errors that no call returns: package untrusted takes the next connection, package refuse is for
	// tests.
	inner := regexp.MustCompile(`^(EPOLL.*|ECONNABORTED|ENOPROTOOPT)$`)
	source(t, func(path, code string) {
		for _, library := range []string{"verbs", "provider", "rdmacm", "rsocket", "umad", "internal"} {
			if !strings.HasPrefix(path, filepath.Join("..", library)+string(filepath.Separator)) || strings.HasPrefix(path,
				filepath.Join("..", "internal", "tools")) {
				continue
			}
			for _, m := range errno.FindAllStringSubmatch(code, -1) {
				if !inner.MatchString(m[1]) && !regexp.MustCompile(`(?m)^\|[^|]*\b`+m[1]+`\b[^|]*\|`).MatchString(text) {
					t.Errorf("nothing on %s, of %s", m[1], path)
				}
			}
		}
	})
}

// Each row of the page says what it means and what to check; what it calls never raised no transport has code for.
func TestErrorsPageTellsWhatToCheck(t *testing.T) {
	var transport strings.Builder
	source(t, func(path, code string) {
		folder, file := filepath.Split(path)
		if slices.Contains([]string{"transport", "engine", "raw"}, filepath.Base(folder)) && file != "types.go" {
			transport.WriteString(code)
		}
	})
	raised := func(s WCStatus) bool { // LOC_LEN_ERR is LocLenErr there
		name := strings.ReplaceAll(strings.ToLower(s.Name()), "_", "")
		return regexp.MustCompile(`(?i)\b` + name + `\b`).MatchString(transport.String())
	}
	rows := 0
	for line := range strings.Lines(page(t, "errors.md")) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		rows++
		if first := strings.TrimSpace(cells[1]); first != "SUCCESS" && (strings.TrimSpace(cells[2]) == "" ||
			strings.TrimSpace(cells[3]) == "") {
			t.Errorf("%s: nothing on what it means, or what to check", first)
		}
		never := strings.Contains(cells[3], "Never seen") || strings.Contains(cells[3], "Not raised")
		for s := range WCStatus(len(wcStatusTexts)) {
			if regexp.MustCompile(`\b`+s.Name()+`\b`).MatchString(cells[1]) && s != WCSuccess && raised(s) == never {
				t.Errorf("%s: raised by the transport: %v, and the page says %q", s.Name(), raised(s), cells[3])
			}
		}
	}
	if rows < 60 {
		t.Errorf("only %d rows were looked at", rows)
	}
}

// The page of environment variables has those that the code reads, and no others. Those that only tests read begin with
// VERBENA_TEST_ and are not for users.
func TestEnvironmentPageIsComplete(t *testing.T) {
	text := page(t, "environment.md")
	inCode := make(map[string]bool)
	quoted := regexp.MustCompile(`"(VERBENA_[A-Z_]+)"`)
	source(t, func(path, code string) {
		for _, m := range quoted.FindAllStringSubmatch(code, -1) {
			inCode[m[1]] = true
			if strings.HasPrefix(m[1], "VERBENA_TEST_") {
				continue
			}
			if !strings.Contains(text, "`"+m[1]+"`") {
				t.Errorf("nothing on %s, of %s", m[1], path)
			}
		}
	})
	for _, m := range regexp.MustCompile("`(VERBENA_[A-Z_]+)`").FindAllStringSubmatch(text, -1) {
		if !inCode[m[1]] {
			t.Errorf("no code reads %s", m[1])
		}
	}
}
