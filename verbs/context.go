package verbs

import (
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Context is an open device (struct ibv_context). All other objects are created from it. It is safe for concurrent
// use.
type Context struct {
	dev      *Device
	drv      DriverContext
	attr     DeviceAttr // constant, like vectors
	vectors  int
	lifetime lifetime
	mu       sync.RWMutex // read-held by queries, so that Close waits for them
	async    eventQueue[AsyncEvent]
	export   exportFile
	fatal    chan struct{} // closed by EventDeviceFatal
	failed   sync.Once
	channels channelSet
}

// Open opens the device (ibv_open_device). A device may be opened any number of times; each context is closed by
// Context.Close. Asynchronous events queue from this call on. The errors are the provider's, such as EACCES without the
// right to an adapter's device file.
func (d *Device) Open() (*Context, error) {
	forkByEnvironment(os.Stderr)
	vctx := &Context{dev: d, fatal: make(chan struct{})}
	drv, err := d.drv.Open((*contextEvents)(vctx))
	if err != nil {
		return nil, driverError("open_device", d.Name(), err)
	}
	vctx.drv = drv
	if vctx.attr, err = drv.QueryDevice(); err != nil {
		_ = drv.Close()
		return nil, driverError("open_device", d.Name(), err)
	}
	vctx.vectors = max(1, drv.NumCompVectors())
	return vctx, nil
}

// Close closes the context (ibv_close_device). EBUSY while PDs, CQs, completion channels, DMs or other objects of it
// are open; the context then stays open. The C function closes the device anyway. Pending calls of GetAsyncEvent return
// ErrClosed. It succeeds after the removal of the device, too.
func (vctx *Context) Close() error {
	vctx.mu.Lock()
	defer vctx.mu.Unlock()
	if err := vctx.lifetime.close("close_device", vctx); err != nil {
		return err
	}
	if err := vctx.drv.Close(); err != nil {
		vctx.lifetime.reopen()
		return driverError("close_device", vctx.obj(), err)
	}
	vctx.async.close()
	vctx.unexport()
	return nil
}

// Device returns the device of the context.
func (vctx *Context) Device() *Device { return vctx.dev }

// NumCompVectors returns the number of completion vectors, at least 1 (num_comp_vectors of struct ibv_context).
func (vctx *Context) NumCompVectors() int { return vctx.vectors }

func (vctx *Context) obj() string { return vctx.dev.Name() }

// enter keeps the context open until leave. It returns ErrClosed if the context is closed, EIO if its device was
// removed.
//
// +checklocksignore: holds mu only on success, until leave
func (vctx *Context) enter(op string) error {
	vctx.mu.RLock()
	if vctx.lifetime.closed.Load() {
		vctx.mu.RUnlock()
		return errClosed(op, vctx.obj())
	}
	if err := vctx.checkRemoved(op, vctx); err != nil {
		vctx.mu.RUnlock()
		return err
	}
	return nil
}

// +checklocksignore: unlocks for enter
func (vctx *Context) leave() { vctx.mu.RUnlock() }

// QueryDevice returns the attributes of the device (ibv_query_device, ibv_query_device_ex). They never change.
func (vctx *Context) QueryDevice() (DeviceAttr, error) {
	if err := vctx.enter("query_device"); err != nil {
		return DeviceAttr{}, err
	}
	defer vctx.leave()
	return vctx.attr, nil
}

// QueryPort returns the attributes of a port, 1 to PhysPortCnt (ibv_query_port). EINVAL for another port number.
func (vctx *Context) QueryPort(port uint8) (PortAttr, error) {
	if err := vctx.enter("query_port"); err != nil {
		return PortAttr{}, err
	}
	defer vctx.leave()
	return vctx.queryPort("query_port", port)
}

// queryPort is QueryPort. The caller keeps the context open.
func (vctx *Context) queryPort(op string, port uint8) (PortAttr, error) {
	if err := vctx.checkPort(op, port); err != nil {
		return PortAttr{}, err
	}
	attr, err := vctx.drv.QueryPort(port)
	return attr, driverError(op, vctx.obj(), err)
}

func (vctx *Context) checkPort(op string, port uint8) error {
	if port < 1 || port > vctx.attr.PhysPortCnt {
		return newError(op, vctx.obj(), EINVAL, "port %d: must be 1 to %d", port, vctx.attr.PhysPortCnt)
	}
	return nil
}

// QueryGID returns an entry of a port's GID table (ibv_query_gid). index is 0 to GIDTblLen-1, else EINVAL. An empty
// entry is the zero GID.
func (vctx *Context) QueryGID(port uint8, index int) (GID, error) {
	e, err := vctx.gidEntry("query_gid", port, index)
	return e.GID, err
}

// QueryGIDEntry is QueryGID with the entry's type and network interface (ibv_query_gid_ex). ENODATA if the entry is
// empty.
func (vctx *Context) QueryGIDEntry(port uint8, index int) (GIDEntry, error) {
	e, err := vctx.gidEntry("query_gid_ex", port, index)
	if err == nil && e.GID.IsZero() {
		err = newError("query_gid_ex", vctx.obj(), ENODATA,
			"entry %d of port %d is empty; verbena show_gids lists the others", index, port)
	}
	return e, err
}

func (vctx *Context) gidEntry(op string, port uint8, index int) (GIDEntry, error) {
	if err := vctx.enter(op); err != nil {
		return GIDEntry{}, err
	}
	defer vctx.leave()
	attr, err := vctx.queryPort(op, port)
	if err != nil {
		return GIDEntry{}, err
	}
	if index < 0 || index >= attr.GIDTblLen {
		return GIDEntry{}, newError(op, vctx.obj(), EINVAL, "GID index %d: must be 0 to %d", index, attr.GIDTblLen-1)
	}
	table, err := vctx.gidTable(op, port)
	var e GIDEntry
	if err == nil && index < len(table) {
		e = table[index]
	}
	e.Index, e.Port = index, port
	return e, err
}

// gidTable returns the driver's table; see DriverContext.
func (vctx *Context) gidTable(op string, port uint8) ([]GIDEntry, error) {
	table, err := vctx.drv.GIDTable(port)
	return table, driverError(op, vctx.obj(), err)
}

// QueryGIDTable returns the entries of the GID tables of all ports that are not empty (ibv_query_gid_table).
func (vctx *Context) QueryGIDTable() ([]GIDEntry, error) {
	if err := vctx.enter("query_gid_table"); err != nil {
		return nil, err
	}
	defer vctx.leave()
	var all []GIDEntry
	for port := 1; port <= int(vctx.attr.PhysPortCnt); port++ {
		table, err := vctx.gidTable("query_gid_table", uint8(port))
		if err != nil {
			return nil, err
		}
		all = slices.Grow(all, len(table))
		for i, e := range table {
			if !e.GID.IsZero() {
				e.Index, e.Port = i, uint8(port)
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// SelectGID chooses the entry of a port's GID table for traffic to a peer and gives the reason. It has no C twin: C
// programs take the index as an option. port is 1 to PhysPortCnt. EINVAL for another port number or an invalid peer,
// ENODATA if the port has no GID for the peer.
func (vctx *Context) SelectGID(port uint8, peer netip.Addr) (GIDChoice, error) {
	const op = "select_gid"
	if err := vctx.enter(op); err != nil {
		return GIDChoice{}, err
	}
	defer vctx.leave()
	if err := vctx.checkPort(op, port); err != nil {
		return GIDChoice{}, err
	}
	return vctx.selectGID(port, peer)
}

func (vctx *Context) selectGID(port uint8, peer netip.Addr) (GIDChoice, error) {
	if !peer.IsValid() {
		return GIDChoice{}, newError("select_gid", vctx.obj(), EINVAL, "the peer's address is not valid")
	}
	choice, err := vctx.drv.SelectGID(port, peer)
	return choice, driverError("select_gid", vctx.obj(), err)
}

// QueryPKey returns an entry of a port's P_Key table in host byte order (ibv_query_pkey). Bit 15 is set for full
// members. index is 0 to PKeyTblLen-1, else EINVAL.
func (vctx *Context) QueryPKey(port uint8, index int) (uint16, error) {
	table, err := vctx.pkeyTable("query_pkey", port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index >= len(table) {
		return 0, newError("query_pkey", vctx.obj(), EINVAL, "P_Key index %d: must be 0 to %d", index, len(table)-1)
	}
	return table[index], nil
}

// PKeyIndex returns the index of a P_Key, given in host byte order, in a port's table (ibv_get_pkey_index). ENOENT if
// the table does not have it.
func (vctx *Context) PKeyIndex(port uint8, pkey uint16) (int, error) {
	table, err := vctx.pkeyTable("get_pkey_index", port)
	if err != nil {
		return -1, err
	}
	for i, p := range table {
		if p == pkey {
			return i, nil
		}
	}
	return -1, newError("get_pkey_index", vctx.obj(), ENOENT, "P_Key 0x%04x is not in the table of port %d", pkey, port)
}

func (vctx *Context) pkeyTable(op string, port uint8) ([]uint16, error) {
	if err := vctx.enter(op); err != nil {
		return nil, err
	}
	defer vctx.leave()
	if err := vctx.checkPort(op, port); err != nil {
		return nil, err
	}
	table, err := vctx.drv.PKeyTable(port)
	return table, driverError(op, vctx.obj(), err)
}

// RTValues holds the values of a device that change all the time (struct ibv_values_ex).
type RTValues struct {
	RawClock uint64 // ticks of the clock of WC.Timestamp; DeviceAttr.HCACoreClock is its frequency
}

// QueryRTValues reads the device's clock, to compare it with the timestamps of completions (ibv_query_rt_values_ex).
// EOPNOTSUPP if the device has no readable clock.
func (vctx *Context) QueryRTValues() (RTValues, error) {
	const op = "query_rt_values_ex"
	if err := vctx.enter(op); err != nil {
		return RTValues{}, err
	}
	defer vctx.leave()
	now, err := vctx.drv.RawClock()
	return RTValues{RawClock: now}, driverError(op, vctx.obj(), err)
}
