//go:build !linux && !darwin

package verbs

// notifier does not exist here.
type notifier struct{ r int }

func newNotifier() (*notifier, error) { return nil, ErrNotSupported }

func (n *notifier) raise() {}
func (n *notifier) clear() {}
func (n *notifier) close() {}
