package verbs

// Open makes a context.
func (d *Device) Open() (*Context, error) { return nil, ErrNotSupported }

// Close closes.
func (ctx *Context) Close() error { return ErrNotSupported }

// QueryPort queries.
func (ctx *Context) QueryPort(port uint8) (PortAttr, error) { return PortAttr{}, ErrNotSupported }
