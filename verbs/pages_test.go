package verbs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
	errno := regexp.MustCompile(`\b(?:syscall|verbs|unix)\.(E[A-Z]{3,})\b`)
	poll := regexp.MustCompile(`^EPOLL`)
	source(t, func(path, code string) {
		for _, public := range []string{"verbs", "provider", "rdmacm", "rsocket", "umad"} {
			if !strings.HasPrefix(path, filepath.Join("..", public)+string(filepath.Separator)) {
				continue
			}
			for _, m := range errno.FindAllStringSubmatch(code, -1) {
				if !poll.MatchString(m[1]) && !regexp.MustCompile(`(?m)^\|[^|]*\b`+m[1]+`\b[^|]*\|`).MatchString(text) {
					t.Errorf("nothing on %s, of %s", m[1], path)
				}
			}
		}
	})
}

// The page of environment variables has those that the code reads, and no others.
func TestEnvironmentPageIsComplete(t *testing.T) {
	text := page(t, "environment.md")
	inCode := make(map[string]bool)
	quoted := regexp.MustCompile(`"(VERBENA_[A-Z_]+)"`)
	source(t, func(path, code string) {
		for _, m := range quoted.FindAllStringSubmatch(code, -1) {
			inCode[m[1]] = true
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
