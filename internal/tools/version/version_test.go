package version

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func TestOf(t *testing.T) {
	b := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"}, {Key: "GOOS", Value: "x"}}}
	var out bytes.Buffer
	of(b).Print(&out)
	want := "verbena v1.2.3\ncommit  abc of 2026-01-02T03:04:05Z, with local changes\nbuilt   with " + runtime.Version() +
		" for " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	of(&debug.BuildInfo{}).Print(&out)
	if !strings.HasPrefix(out.String(), "verbena (devel)\nbuilt   with go") {
		t.Errorf("without stamps: %q", out.String())
	}
}

func TestTool(t *testing.T) {
	var out bytes.Buffer
	env := &tool.Env{Argv0: "verbena version", Stdout: &out, Stderr: io.Discard}
	if status := run(env, []string{"--json"}); status != 0 {
		t.Fatalf("status %d", status)
	}
	var got Info
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != Of() {
		t.Errorf("%s: %+v, %v", &out, got, err)
	}
	if status := run(env, []string{"x"}); status != 1 {
		t.Errorf("with an argument: status %d", status)
	}
}
