// Package asyncwatch is the tool ibv_asyncwatch, which prints the asynchronous events of a device, with the
// options and output of the C program. It imports verbs, internal/tools/nearest and internal/tools/tool.
package asyncwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tools returns the program.
func Tools() []tool.Tool {
	return []tool.Tool{{Name: "ibv_asyncwatch", Short: "print a device's asynchronous events", Run: run}}
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]")
	name := f.StringP("ib-dev", "d", "", "use this device (default: the first one found)")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	devices, err := verbs.Devices()
	if err != nil {
		env.Failf("%v", err)
	}
	for _, d := range devices {
		if *name == "" || d.Name() == *name {
			c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return watch(c, env, d)
		}
	}
	if *name == "" {
		return env.Failf("No IB devices found")
	}
	return env.Failf("IB device %s not found%s", *name, nearest.Instead(devices))
}

// watch prints the events of a device until c is done.
func watch(c context.Context, env *tool.Env, d *verbs.Device) int {
	ctx, err := d.Open()
	if err != nil {
		return env.Failf("Couldn't get context for %s: %v", d.Name(), err)
	}
	defer ctx.Close()
	fd, err := ctx.AsyncFD()
	if err != nil {
		fd = -1 // not supported on this system
	}
	fmt.Fprintf(env.Stdout, "%s: async event FD %d\n", d.Name(), fd)
	for {
		ev, err := ctx.GetAsyncEvent(c)
		switch {
		case errors.Is(err, context.Canceled):
			return 0
		case err != nil:
			return env.Failf("%v", err)
		}
		fmt.Fprintf(env.Stdout, "  event_type %s (%d), port %d\n", nameOf(ev.Type), ev.Type, ev.Port)
		ev.Ack()
	}
}

// names has the C names of the events of a device or a port. Events of other objects cannot reach a program
// that creates none.
var names = map[verbs.EventType]string{
	verbs.EventDeviceFatal:      "IBV_EVENT_DEVICE_FATAL",
	verbs.EventPortActive:       "IBV_EVENT_PORT_ACTIVE",
	verbs.EventPortErr:          "IBV_EVENT_PORT_ERR",
	verbs.EventLIDChange:        "IBV_EVENT_LID_CHANGE",
	verbs.EventPKeyChange:       "IBV_EVENT_PKEY_CHANGE",
	verbs.EventSMChange:         "IBV_EVENT_SM_CHANGE",
	verbs.EventClientReregister: "IBV_EVENT_CLIENT_REREGISTER",
	verbs.EventGIDChange:        "IBV_EVENT_GID_CHANGE",
}

func nameOf(t verbs.EventType) string {
	if name := names[t]; name != "" {
		return name
	}
	return "unexpected"
}
