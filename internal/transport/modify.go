package transport

// Modify puts the attributes that m names in force and makes the transition that comes
// with MaskState. The verbs layer has checked both against the tables. Called with the shard held.
func (qp *QP) Modify(now int64, a *Attr, m Mask) error { return nil }
