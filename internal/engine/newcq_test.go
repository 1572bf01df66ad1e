package engine

// NewCQ is InitCQ of a CQ of its own.
func (e *Engine) NewCQ(cqe, vector int, up CQUpcalls) *CQ {
	cq := new(CQ)
	e.InitCQ(cq, cqe, vector, up)
	return cq
}
