package verbs

// The objects print as errors name them, so that a log has no fields of an object, which other goroutines change.

// String is the name of the device.
func (vctx *Context) String() string { return vctx.obj() }

// String names the PD as errors do: "PD of vrb_eth0".
func (pd *PD) String() string { return pd.obj() }

// String names the MR by its lkey, as errors do: "MR lkey 0x00000102". Its memory is not printed.
func (mr *MR) String() string { return mr.obj() }

// String names the MW by its rkey, as errors do.
func (mw *MW) String() string { return mw.obj() }

// String names the AH by its destination, as errors do: "AH to 192.0.2.2".
func (ah *AH) String() string { return ah.obj() }

// String names the channel by its device, as errors do.
func (ch *CompChannel) String() string { return ch.obj() }

// String names the CQ by its size and device, as errors do: "CQ of 16 entries of vrb_eth0".
func (cq *CQ) String() string { return cq.obj() }

// String names the SRQ by its device, as errors do.
func (srq *SRQ) String() string { return srq.obj() }

// String names the QP by its type and number, as errors do: "RC QP 0x01be58".
func (qp *QP) String() string { return qp.obj() }

// String names the XRC domain by its device, as errors do.
func (d *XRCD) String() string { return d.obj() }
