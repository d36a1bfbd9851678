define void @scale_add_0(ptr %args, i64 %begin, i64 %end) {
entry:
  %p0.at = getelementptr i64, ptr %args, i64 0
  %p0 = load ptr, ptr %p0.at, align 8
  %p1.at = getelementptr i64, ptr %args, i64 1
  %p1 = load ptr, ptr %p1.at, align 8
  %t1 = udiv i32 20, 8
  %t2 = zext i32 %t1 to i64
  %t3 = urem i32 20, 8
  %t4 = zext i32 %t3 to i64
  %t5 = call i64 @llvm.smax.i64(i64 %t2, i64 0)
  %t6 = call i64 @llvm.smax.i64(i64 %begin, i64 0)
  %t7 = call i64 @llvm.smin.i64(i64 %end, i64 %t5)
  %t12 = mul i64 %t6, 8
  %t13 = icmp slt i64 %t6, %t7
  br i1 %t13, label %loop1, label %loop1.done
loop1:
  %i1 = phi i64 [ %t6, %entry ], [ %i1.next, %loop1 ]
  %i1.by8 = phi i64 [ %t12, %entry ], [ %i1.by8.next, %loop1 ]
  %t8 = getelementptr float, ptr %p0, i64 %i1.by8
  %t9 = load <8 x float>, ptr %t8, align 4
  %t10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %t9, <8 x float> splat (float 0x4000000000000000), <8 x float> splat (float 0x3FF0000000000000))
  %t11 = getelementptr float, ptr %p1, i64 %i1.by8
  store <8 x float> %t10, ptr %t11, align 4
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.by8.next = add i64 %i1.by8, 8
  %t14 = icmp slt i64 %i1.next, %t7
  br i1 %t14, label %loop1, label %loop1.done
loop1.done:
  %t15 = call i64 @llvm.smax.i64(i64 %t4, i64 0)
  %t16 = add i64 %t5, %t15
  %t17 = call i64 @llvm.smax.i64(i64 %begin, i64 %t5)
  %t18 = call i64 @llvm.smin.i64(i64 %end, i64 %t16)
  %t19 = sub i64 %t17, %t5
  %t20 = sub i64 %t18, %t5
  %t21 = mul i64 %t2, 8
  %t22 = getelementptr float, ptr %p0, i64 %t21
  %t26 = getelementptr float, ptr %p1, i64 %t21
  %t28 = icmp slt i64 %t19, %t20
  br i1 %t28, label %loop2, label %loop2.done
loop2:
  %i2 = phi i64 [ %t19, %loop1.done ], [ %i2.next, %loop2 ]
  %t23 = getelementptr float, ptr %t22, i64 %i2
  %t24 = load float, ptr %t23, align 4
  %t25 = call float @llvm.fma.f32(float %t24, float 0x4000000000000000, float 0x3FF0000000000000)
  %t27 = getelementptr float, ptr %t26, i64 %i2
  store float %t25, ptr %t27, align 4
  %i2.next = add nuw nsw i64 %i2, 1
  %t29 = icmp slt i64 %i2.next, %t20
  br i1 %t29, label %loop2, label %loop2.done
loop2.done:
  ret void
}
